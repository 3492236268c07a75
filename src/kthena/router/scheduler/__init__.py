"""Which endpoint of a server gets a request: filters, then scorers, then a picker."""
