"""The entry point: a table of commands, each loaded only when it is used.

Importing this module costs click and nothing else, so that `kthena --help` stays quick; the table
carries the one-line helps for the same reason.
"""

import importlib
import sys
from typing import NamedTuple

import click

from kthena import __version__
from kthena.cli.errors import CliError


class _Command(NamedTuple):
    module: str
    help: str


_COMMANDS = {
    "up": _Command(
        "up", "Run manifests on this machine: API server, controllers, router, engines."
    ),
    "chat": _Command("chat", "Ask a model one question through the router."),
    "apply": _Command("apply", "Create or change the objects of files or a kustomization."),
    "get": _Command("get", "List objects, as kubectl prints them."),
    "describe": _Command("describe", "Show one object with its conditions, children and events."),
    "delete": _Command("delete", "Delete objects by name, or those of files."),
    "logs": _Command("logs", "Print what a pod's container wrote."),
    "crds": _Command("crds", "Print the CustomResourceDefinitions of this version."),
    "controller-manager": _Command("controller_manager", "Run the workload plane's controllers."),
    "router": _Command("router", "Run the router: the networking plane and the data plane."),
    "node": _Command("node", "Run the pods of a cluster as processes on this machine."),
    "engine": _Command("engine", "Run the mock of a vLLM or SGLang server."),
}


class _LazyGroup(click.Group):
    """Commands by name; a command's module is imported when the command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        entry = _COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module = importlib.import_module(f"kthena.cli.{entry.module}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="kthena %(version)s")
def cli() -> None:
    """Serve large language models on Kubernetes, and on this machine, with the same manifests."""


def main() -> None:
    """Run the command line; exit codes are those of `kthena.cli.errors`."""
    try:
        cli.main(standalone_mode=False)
    except CliError as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.exceptions.Abort, KeyboardInterrupt):
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
