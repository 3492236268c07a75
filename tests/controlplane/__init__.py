"""A real Kubernetes control plane on loopback, without containers, for tests."""
