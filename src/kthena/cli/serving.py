"""What the long-running programs share: signals, the event loop, health ports, exit codes."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from kthena.cli.errors import CliError, ExitCode
from kthena.cli.target import FIELD_MANAGER

if TYPE_CHECKING:
    from kthena.kube.client import ClientConfig


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run to the end on uvloop where it exists.

    Raises:
        CliError: a port is taken, or the cluster's configuration is unusable.
    """
    from kthena.kube.errors import ClientConfigError
    from kthena.kube.program import LeadershipLost
    from kthena.router.event_loop import new_event_loop

    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(main)
    except OSError as exc:
        raise CliError(exc.strerror or str(exc)) from exc
    except ClientConfigError as exc:
        raise CliError(f"no cluster: {exc}", exit_code=ExitCode.USAGE) from exc
    except LeadershipLost as exc:
        raise CliError(str(exc)) from exc


def on_stop_signal(stop: Callable[[], None]) -> None:
    """Call `stop` when the process is told to end."""
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop)


def client_config(
    kubeconfig: str | None, context: str | None, manager: str, qps: float = 0.0, burst: int = 10
) -> "ClientConfig":
    """The client's configuration; QPS 0 means no limit."""
    from pathlib import Path

    from kthena.kube.client import ClientConfig

    return ClientConfig(
        kubeconfig=Path(kubeconfig) if kubeconfig else None,
        context=context,
        field_manager=manager or FIELD_MANAGER,
        user_agent=manager or FIELD_MANAGER,
        qps=qps,
        burst=burst or 10,
    )
