"""Who owns which field of an object: `metadata.managedFields`, and server-side apply over it.

The rules are those of structured-merge-diff and of apimachinery's field manager (1.35). A set of
fields is kept in the form of FieldsV1 (`fieldsets`); how values merge comes from a schema (`atoms`).
`comparison`, `merging` and `ownership` walk values along a schema; `entries` reads and writes the list
in the metadata; `tracking` is what a server calls: one function for a write that brings a whole object,
one for an apply.
"""
