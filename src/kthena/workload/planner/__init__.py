"""Decides what a ModelServing needs next, from what can be observed. Pure."""
