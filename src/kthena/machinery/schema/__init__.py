"""Structural schemas of custom resources: compile once, then prune, default and validate objects.

Behaviour and texts are those of k8s.io/apiextensions-apiserver 1.35.
"""
