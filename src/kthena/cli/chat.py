"""`kthena chat`: one question to a model, through the router."""

import http.client
import json
import os
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import click

from kthena.cli.errors import CliError, ExitCode
from kthena.cli.target import find_router

_DATA = b"data:"


@click.command("chat")
@click.argument("model")
@click.argument("text")
@click.option("--stream", is_flag=True, help="Print the answer as it is generated.")
@click.option("--router", metavar="URL", help="The router; default: KTHENA_ROUTER_URL.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Length limit of the answer.")
@click.option("--system", default="", help="System message ahead of the question.")
@click.option("--timeout", "timeout_s", type=float, default=300.0, help="Seconds; default 300.")
def command(
    model: str,
    text: str,
    stream: bool,
    router: str | None,
    max_tokens: int | None,
    system: str,
    timeout_s: float,
) -> None:
    """Ask MODEL one question and print the answer."""
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": text})
    body: dict[str, Any] = {"model": model, "messages": messages}
    if max_tokens is not None:
        body["max_tokens"] = max_tokens
    if stream:
        body["stream"] = True
    for part in ask(find_router(router, os.environ), body, timeout_s):
        sys.stdout.write(part)
        sys.stdout.flush()
    sys.stdout.write("\n")


def ask(router_url: str, body: dict[str, Any], timeout_s: float) -> Iterator[str]:
    """The answer's text, in the parts in which it arrives.

    Raises:
        CliError: the router cannot be reached, answers an error, or the stream ends with one.
    """
    parts = urlsplit(router_url)
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind(parts.hostname or "127.0.0.1", parts.port, timeout=timeout_s)
    try:
        connection.request(
            "POST",
            f"{parts.path}/v1/chat/completions",
            body=json.dumps(body),
            headers={"Content-Type": "application/json"},
        )
        response = connection.getresponse()
        if response.status != 200:
            raise _refused(response)
        if body.get("stream"):
            yield from _stream(response)
        else:
            yield _content(json.loads(response.read()), "message")
    except (OSError, http.client.HTTPException) as exc:
        raise CliError(
            f"the router {router_url} does not answer: {str(exc) or type(exc).__name__}",
            hint="is it running? `kthena up` prints its address",
            exit_code=ExitCode.UNREACHABLE,
        ) from exc
    finally:
        connection.close()


def _stream(response: http.client.HTTPResponse) -> Iterator[str]:
    for line in response:
        if not line.startswith(_DATA):
            continue
        data = line[len(_DATA) :].strip()
        if data == b"[DONE]":
            return
        event = json.loads(data)
        if "error" in event:
            raise CliError(f"the stream broke off: {event['error'].get('message')}")
        yield _content(event, "delta")
    raise CliError("the stream ended before the answer did")


def _content(answer: dict[str, Any], key: str) -> str:
    choices = answer.get("choices") or [{}]
    return str((choices[0].get(key) or {}).get("content") or "")


def _refused(response: http.client.HTTPResponse) -> CliError:
    text = response.read().decode(errors="replace")
    try:
        message = json.loads(text)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = text.strip()[:200] or response.reason
    code = ExitCode.NOT_FOUND if response.status == 404 else ExitCode.FAILED
    return CliError(f"{response.status}: {message}", exit_code=code)
