"""The functions of rules: CEL's own, the extensions of cel-go and those of Kubernetes."""
