"""The built-in kinds: how their objects are defaulted, validated and shown."""
