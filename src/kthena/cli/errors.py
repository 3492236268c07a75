"""Errors that a user sees, and the exit codes of the program.

| Code | Meaning |
|---|---|
| 0 | done |
| 1 | failed for another reason than those below |
| 2 | wrong usage: an option, a file that does not parse, a setting that is not implemented |
| 3 | not ready in time |
| 4 | not found |
| 5 | conflict: the object was changed meanwhile, or exists already |
| 6 | refused by the server: invalid object, forbidden |
| 7 | the server cannot be reached |
| 130 | interrupted |
"""

from enum import IntEnum

import click


class ExitCode(IntEnum):
    """The exit codes; the module docstring says what each means."""

    FAILED = 1
    USAGE = 2
    NOT_READY = 3
    NOT_FOUND = 4
    CONFLICT = 5
    REFUSED = 6
    UNREACHABLE = 7


class CliError(Exception):
    """What went wrong in one line, and in a second one what to do about it."""

    def __init__(
        self, message: str, *, hint: str = "", exit_code: ExitCode = ExitCode.FAILED
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = int(exit_code)

    def show(self) -> None:
        """Write the error to stderr."""
        click.echo(f"error: {self.message}", err=True)
        if self.hint:
            click.echo(f"hint: {self.hint}", err=True)
