"""What is known of vLLM and SGLang: command lines, ports, metric names, request dialects."""
