"""The workload plane: ModelServing to pods and services. It reads no networking kind."""
