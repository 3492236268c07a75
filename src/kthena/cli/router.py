"""`kthena router`: the networking plane and the data plane on a cluster."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kthena.cli.errors import CliError, ExitCode
from kthena.cli.options import cluster_options
from kthena.cli.serving import client_config, on_stop_signal, run_loop

if TYPE_CHECKING:
    from kthena.router.config import RouterConfig

_MANAGER = "kthena-router"


@click.command("router")
@cluster_options
@click.option("--host", default="", help="Address to listen on; default: all interfaces.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True,
              help="Port for inference, /healthz and /readyz.")  # fmt: skip
@click.option("--metrics-port", type=click.IntRange(0, 65535), default=9090, show_default=True,
              help="Port of /metrics.")  # fmt: skip
@click.option("--expose-metrics-on-router-port", is_flag=True, help="Serve /metrics on --port too.")
@click.option("--config", "config_file", type=click.Path(path_type=Path),
              help="Configuration file; default: the chart's, where it exists.")  # fmt: skip
@click.option("--kube-api-qps", type=click.FloatRange(min=0), default=0.0,
              help="Requests per second to the API server; 0: no limit.")  # fmt: skip
@click.option("--kube-api-burst", type=click.IntRange(min=0), default=0,
              help="Requests at once within the limit.")  # fmt: skip
@click.option("--leader-elect/--no-leader-elect", default=True, show_default=True,
              help="Write statuses only while holding the Lease; all replicas route.")  # fmt: skip
@click.option("--lease-namespace", default=lambda: os.environ.get("POD_NAMESPACE", "default"),
              help="Namespace of the Lease; default: POD_NAMESPACE, or default.")  # fmt: skip
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]),
              default="info")  # fmt: skip
def command(**options: Any) -> None:
    """Route requests to the engines of a cluster until a signal comes.

    A setting that this version does not implement is refused: exit code 2, naming the key.
    """
    from kthena.telemetry import logging

    logging.configure(level=options["log_level"], log_format=options["log_format"])
    run_loop(_main(options, _configuration(options)))


def _configuration(options: dict[str, Any]) -> "RouterConfig":
    """The configuration of file, environment and options.

    Raises:
        CliError: a key is unknown, malformed or not implemented; exit code 2.
    """
    from dataclasses import replace

    from kthena.router.config import (
        CONFIGURATION_FILE,
        ConfigurationError,
        RouterConfig,
        apply_environment,
        load_configuration,
    )

    given: Path | None = options["config_file"]
    path = given or Path(CONFIGURATION_FILE)
    config = RouterConfig()
    try:
        if given is not None or path.is_file():
            config = load_configuration(path.read_text(encoding="utf-8"), str(path))
    except ConfigurationError as exc:
        text = str(exc)
        where = "" if text.startswith(str(path)) else f"{path}: "
        raise CliError(f"{where}{text}", exit_code=ExitCode.USAGE) from exc
    except OSError as exc:
        raise CliError(f"{path}: {exc.strerror or exc}", exit_code=ExitCode.USAGE) from exc
    try:
        config = apply_environment(config, os.environ)
    except ConfigurationError as exc:
        raise CliError(f"environment variable {exc}", exit_code=ExitCode.USAGE) from exc
    return replace(config, expose_metrics=options["expose_metrics_on_router_port"])


async def _main(options: dict[str, Any], config: "RouterConfig") -> None:
    from random import SystemRandom

    from kthena.kube.client import KubeClient
    from kthena.kube.clock import SystemClock
    from kthena.kube.metrics import KubeMetrics
    from kthena.networking.program import NetworkingConfig, NetworkingProgram
    from kthena.router.app import Router
    from kthena.router.event_loop import settle_memory
    from kthena.telemetry.metrics import Metrics

    metrics, clock = Metrics("kthena_router_"), SystemClock()
    kube_metrics = KubeMetrics(metrics)
    router = Router(config, clock, SystemRandom(), metrics)
    kube = client_config(
        options["kubeconfig"],
        options["context"],
        _MANAGER,
        options["kube_api_qps"],
        options["kube_api_burst"],
    )
    networking = NetworkingConfig(options["lease_namespace"] if options["leader_elect"] else "")
    async with KubeClient.connect(kube, observer=kube_metrics.api_call) as client:
        program = NetworkingProgram(client, router.swap, networking, clock, kube_metrics)
        router.readiness.show(program.readiness)
        stopping = asyncio.Event()
        on_stop_signal(stopping.set)
        await router.serve(options["host"], options["port"])
        await router.serve_operations(options["host"], options["metrics_port"])
        settle_memory()
        running = asyncio.create_task(program.run())
        stopped = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            # Routing goes on until the last reply has ended: the tables stay fresh meanwhile.
            await router.close()
            program.stop()
            await running
