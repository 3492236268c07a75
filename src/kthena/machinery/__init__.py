"""Kubernetes-style primitives over plain JSON: no loop, no clock, no socket, no client."""
