"""The objects that a ModelServing is made of: what each looks like, and how it is recognised."""
