#!/bin/sh
# Run by `kthena up -k examples/quickstart -- sh examples/quickstart/ask.sh`, which sets KUBECONFIG
# and KTHENA_ROUTER_URL and puts kthena on the PATH.
set -eu
kthena chat qwen3 "Say hello to Kubernetes"
echo
kthena get modelservings,modelservers,modelroutes
