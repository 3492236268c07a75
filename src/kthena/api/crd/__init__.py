"""The CRD generator: structs and rules of the kinds in, CustomResourceDefinitions out."""
