"""Writes docs/reference/cli.md: every command's help, and the exit codes.

python tools/gen_cli.py            write it if it differs
python tools/gen_cli.py --check    write nothing; exit 1 if it differs
"""

import argparse
import sys
from pathlib import Path

import click

from kthena.cli import errors
from kthena.cli.main import cli

_PAGE = "docs/reference/cli.md"
_INTRODUCTION = """\
# Commands and exit codes

Written by `tools/gen_cli.py` from the commands themselves. [First steps](../guides/first-steps.md)
shows them at work.

Commands that talk to a cluster find it by `--kubeconfig`, then `KUBECONFIG`, then a running `kthena up`
of the same user, then as kubectl does. `kthena chat` finds the router by `--router`, then
`KTHENA_ROUTER_URL`, then a running `kthena up`.

An error is one line on stderr that starts with `error: ` and names the object, the field and the cause,
and where there is a fix a second one that starts with `hint: `.

## Exit codes

"""
_WIDTH = 100


def main() -> None:
    """Write or check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    arguments = parser.parse_args()
    path = Path(__file__).resolve().parent.parent / _PAGE
    text = page()
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    if arguments.check:
        sys.exit(f"{_PAGE} is not as the commands say; run: python tools/gen_cli.py")
    path.write_text(text, encoding="utf-8")
    print(_PAGE)


def page() -> str:
    """The whole page."""
    docstring = errors.__doc__ or ""
    table = "\n".join(line for line in docstring.splitlines() if line.startswith("|"))
    context = click.Context(cli, info_name="kthena", **cli.context_settings)
    sections = [f"{_INTRODUCTION}{table}\n"]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None  # noqa: S101 - the group has just listed it
        inner = click.Context(
            command, info_name=name, parent=context, terminal_width=_WIDTH, max_content_width=_WIDTH
        )
        sections.append(f"## kthena {name}\n\n```text\n{command.get_help(inner)}\n```\n")
    return "\n".join(sections)


if __name__ == "__main__":
    main()
