"""How a request runs over a prefill and a decode endpoint: one module per transfer protocol."""
