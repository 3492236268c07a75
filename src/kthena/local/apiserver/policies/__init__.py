"""ValidatingAdmissionPolicies: matching and evaluation over plain data, and the hook that applies them."""
