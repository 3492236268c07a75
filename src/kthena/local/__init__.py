"""The embedded default: API server, node, engines and their composition on one machine."""
