"""Options that several commands share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Function = TypeVar("_Function", bound=Callable[..., Any])


def cluster_options(function: _Function) -> _Function:
    """`--kubeconfig` and `--context`: which cluster."""
    function = click.option("--context", help="Context of the kubeconfig.")(function)
    return click.option(
        "--kubeconfig", metavar="FILE", help="Kubeconfig; default: KUBECONFIG, a running kthena up."
    )(function)


def namespace_options(function: _Function) -> _Function:
    """`-n` and `-A`: which namespaces."""
    function = click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces.")(
        function
    )
    return click.option("-n", "--namespace", default="", help="Namespace of the objects.")(function)


def input_options(function: _Function) -> _Function:
    """`-f` and `-k`: which manifests."""
    function = click.option(
        "-k", "kustomizations", multiple=True, metavar="DIR", help="Folder of a kustomization."
    )(function)
    return click.option(
        "-f", "files", multiple=True, metavar="FILE-OR-DIR", help="Manifest, folder of them, or -."
    )(function)
