"""The data plane: HTTP in, the right engine out. It knows route tables, never Kubernetes objects."""
