"""The three patch formats of the API: JSON Patch, merge patch, strategic merge patch.

No function changes its input, and results share no structure with it. Errors carry the HTTP status
that the API server answers with.
"""
