"""`networking.serving.volcano.sh`: which pods answer for a model, and which requests they get."""
