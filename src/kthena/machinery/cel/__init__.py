"""CEL, the expression language of rules in CRDs, as Kubernetes 1.35 has it.

`rules` is what the rest of the code uses: it compiles the rules of a schema and evaluates them. The
language is implemented here, from parser to libraries, since the verdicts and texts that count are
those of cel-go and of the API server's own values and functions.
"""
