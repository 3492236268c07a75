"""Serve large language models on Kubernetes, and on a laptop, with the same three resources."""

__version__ = "0.1.0"
