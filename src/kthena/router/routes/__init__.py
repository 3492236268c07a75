"""Which ModelServer gets a request: an immutable table, compiled once, matched per request."""
