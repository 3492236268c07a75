"""CustomResourceDefinitions: their rules, the kinds that they define, and what keeps them true."""
