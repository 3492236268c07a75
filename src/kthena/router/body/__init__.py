"""What the router reads of a JSON body, and the few bytes that it changes in it."""
