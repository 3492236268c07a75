"""The durable side of the store: a file that holds the objects, and the commits that write to it."""
