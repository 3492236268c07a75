"""`kthena controller-manager`: the workload plane on a cluster."""

import asyncio
import os
from typing import Any

import click

from kthena.cli.options import cluster_options
from kthena.cli.serving import client_config, on_stop_signal, run_loop

_MANAGER = "kthena-controller-manager"


@click.command("controller-manager")
@cluster_options
@click.option("--workers", type=click.IntRange(min=1), default=5, show_default=True,
              help="ModelServings reconciled at a time.")  # fmt: skip
@click.option("--kube-api-qps", type=click.FloatRange(min=0), default=0.0,
              help="Requests per second to the API server; 0: no limit.")  # fmt: skip
@click.option("--kube-api-burst", type=click.IntRange(min=0), default=0,
              help="Requests at once within the limit.")  # fmt: skip
@click.option("--leader-elect/--no-leader-elect", default=True, show_default=True,
              help="Write only while holding the Lease.")  # fmt: skip
@click.option("--lease-namespace", default=lambda: os.environ.get("POD_NAMESPACE", "default"),
              help="Namespace of the Lease; default: POD_NAMESPACE, or default.")  # fmt: skip
@click.option("--namespace", default="", help="Only this namespace; default: all.")
@click.option("--scheduler-fallback/--no-scheduler-fallback", default=True, show_default=True,
              help="Where no volcano runs, give its pods to the default scheduler.")  # fmt: skip
@click.option("--health-port", type=click.IntRange(0, 65535), default=8081, show_default=True,
              help="Port of /healthz, /readyz and /metrics.")  # fmt: skip
@click.option("--health-host", default="", help="Address of the health port; default: all.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]),
              default="info")  # fmt: skip
def command(**options: Any) -> None:
    """Run the workload plane's controllers until a signal comes.

    Exits 1 when the Lease is lost: whoever started it starts it again.
    """
    from kthena.telemetry import logging

    logging.configure(level=options["log_level"], log_format=options["log_format"])
    run_loop(_main(options))


async def _main(options: dict[str, Any]) -> None:
    from kthena.kube.client import KubeClient
    from kthena.kube.health import HealthServer, build_health_app
    from kthena.kube.metrics import KubeMetrics
    from kthena.telemetry.metrics import Metrics
    from kthena.workload.planner.observed import Capabilities
    from kthena.workload.program import WorkloadConfig, WorkloadProgram

    metrics = Metrics("kthena_controller_manager_")
    kube_metrics = KubeMetrics(metrics)
    config = client_config(
        options["kubeconfig"],
        options["context"],
        _MANAGER,
        options["kube_api_qps"],
        options["kube_api_burst"],
    )
    fallback = options["scheduler_fallback"]
    workload = WorkloadConfig(
        lease_namespace=options["lease_namespace"] if options["leader_elect"] else "",
        namespace=options["namespace"],
        workers=options["workers"],
        capabilities=lambda: Capabilities(scheduler_fallback=fallback),
    )
    async with KubeClient.connect(config, observer=kube_metrics.api_call) as client:
        program = WorkloadProgram(client, workload, metrics=kube_metrics)
        app = build_health_app(program.readiness, metrics)
        health = HealthServer(app, options["health_host"], options["health_port"])
        on_stop_signal(program.stop)
        serving = asyncio.create_task(health.run())
        try:
            await program.run()
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
