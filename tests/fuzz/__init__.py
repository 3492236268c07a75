"""A differential fuzzer: the same operations on the embedded API server and on a real one.

`generator` makes sequences of operations, `runner` sends each operation to both servers and compares
what they answer, what they store in the end and what their watches tell, `shrinking` makes a sequence
that shows a difference short. `python -m fuzz --help` runs it by hand.
"""
