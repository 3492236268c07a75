"""A node of the local cluster: pods as processes of this machine, each with its own loopback address."""
