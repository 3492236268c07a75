"""`kthena engine`: the mock of a vLLM or SGLang server, by itself."""

import os
import sys

import click

from kthena.cli.errors import CliError, ExitCode


@click.command(
    "engine",
    context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]},
)
@click.option(
    "--engine",
    "dialect",
    type=click.Choice(["vllm", "sglang"]),
    default="vllm",
    show_default=True,
    help="Which server to be.",
)
@click.argument("arguments", nargs=-1, metavar="[ENGINE ARGUMENTS...]", type=click.UNPROCESSED)
def command(dialect: str, arguments: tuple[str, ...]) -> None:
    """Run a mock engine with the arguments of the real one, for instance MODEL --port 8000.

    Without a model among the arguments, MODEL_NAME names it.
    """
    from kthena.engines.dialects import Engine
    from kthena.local.engine.commandline import config_from_command
    from kthena.local.engine.config import ConfigError
    from kthena.local.engine.server import run_engine

    engine = Engine.VLLM if dialect == "vllm" else Engine.SGLANG
    try:
        config = config_from_command(_as_real(engine.value, arguments), os.environ, engine)
    except ConfigError as exc:
        raise CliError(str(exc), exit_code=ExitCode.USAGE) from exc
    sys.exit(run_engine(config))


def _as_real(engine: str, arguments: tuple[str, ...]) -> list[str]:
    """The command line that the real server would have."""
    if engine == "vLLM":
        return ["vllm", "serve", *arguments]
    return ["python3", "-m", "sglang.launch_server", *arguments]
