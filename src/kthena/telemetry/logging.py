"""Structured logs on the standard library: a constant message and fields.

A message never carries values, so that equal events are equal texts; values are fields. Bodies,
prompts and credentials are never fields. `configure` is called once by each program.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

LogFormat = Literal["text", "json"]

_ROOT = "kthena"
_MAX_FIELD = 256


class Log:
    """A named logger whose keyword arguments become fields."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"{_ROOT}.{name}" if name else _ROOT)

    def debug(self, message: str, **fields: Any) -> None:
        """Detail for whoever debugs this program."""
        self._write(logging.DEBUG, message, fields)

    def info(self, message: str, **fields: Any) -> None:
        """A change of state that an operator wants to see."""
        self._write(logging.INFO, message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        """Something is wrong and the program goes on."""
        self._write(logging.WARNING, message, fields)

    def error(self, message: str, **fields: Any) -> None:
        """Something failed that was asked for."""
        self._write(logging.ERROR, message, fields)

    def exception(self, message: str, **fields: Any) -> None:
        """An error with the traceback of the exception being handled."""
        self._write(logging.ERROR, message, fields, exc_info=True)

    def _write(
        self, level: int, message: str, fields: dict[str, Any], *, exc_info: bool = False
    ) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, message, extra={"fields": fields}, exc_info=exc_info)


def get_logger(name: str) -> Log:
    """The logger of one part of the program, for instance `kube.informer`."""
    return Log(name)


def configure(
    *, level: str = "info", log_format: LogFormat = "text", stream: TextIO | None = None
) -> None:
    """Send the project's logs to `stream` (stderr by default), replacing any earlier set-up."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter())
    root = logging.getLogger(_ROOT)
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    root.propagate = False


def _cut(value: Any) -> Any:
    """Values of free text are cut, so that no body ends up in a log by way of an error."""
    if isinstance(value, bool | int | float) or value is None:
        return value
    text = str(value)
    return text if len(text) <= _MAX_FIELD else text[: _MAX_FIELD - 1] + "…"


def _timestamp(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({key: _cut(value) for key, value in getattr(record, "fields", {}).items()})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        parts = [_timestamp(record), record.levelname[:4].ljust(4), record.getMessage()]
        for key, value in getattr(record, "fields", {}).items():
            text = str(_cut(value))
            parts.append(f"{key}={json.dumps(text) if _needs_quotes(text) else text}")
        line = " ".join(parts)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _needs_quotes(text: str) -> bool:
    return not text or any(character in text for character in ' "=\n')
