"""A mock of vLLM and SGLang: the engines' HTTP surface with deterministic answers, no model behind it."""
