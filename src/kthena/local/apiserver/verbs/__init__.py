"""The verbs of the API: each reads a request, goes through the registry, and writes a reply."""
