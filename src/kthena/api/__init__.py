"""The kinds that this project serves, their names and their CRDs; and the built-in kinds it uses."""
