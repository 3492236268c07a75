"""`workload.serving.volcano.sh`: which pods run a model."""
