"""A Kubernetes API server in one process: the API that controllers, the CLI and kubectl use.

`server.ApiServer` serves it on loopback, set up by `config.ApiServerConfig`; `logs.LogSource` is what a
node gives it. Everything else is the server's own. What it offers and what it does not is told in
docs/reference/embedded-apiserver.md. It knows no controller of workloads and no client, and keeps its
objects in memory.
"""
