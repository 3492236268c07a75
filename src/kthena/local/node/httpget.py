"""One HTTP/1.1 GET on a fresh connection, without a client library.

Probes and stand-ins need a status and sometimes a body, many times a second, from servers on this
machine; a connection per request is what the kubelet does too. Redirects are not followed, and a
body of more than a mebibyte is refused.
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_MAX_BODY: Final = 2**20
_MAX_HEAD: Final = 2**16


class HttpGetError(Exception):
    """No reply: refused, reset, timed out, or not HTTP. The message says which."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """Status and body of a reply."""

    status: int
    body: bytes


async def http_get(
    host: str,
    port: int,
    path: str,
    *,
    timeout_s: float,
    headers: Mapping[str, str] | None = None,
    tls: bool = False,
) -> HttpReply:
    """GET `path`. A TLS server's certificate is not checked, as the kubelet's probes do not.

    Raises:
        HttpGetError: there was no reply within `timeout_s`.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await _get(host, port, _head(host, port, path, headers or {}), tls=tls)
    except TimeoutError as error:
        raise HttpGetError(f"no reply within {timeout_s:g} s") from error
    except (OSError, ssl.SSLError, asyncio.IncompleteReadError, ValueError) as error:
        raise HttpGetError(str(error) or type(error).__name__) from error


def _head(host: str, port: int, path: str, headers: Mapping[str, str]) -> bytes:
    fields = {"Host": f"{host}:{port}", "Accept": "*/*", "Connection": "close"}
    # A header given twice in other case is one header: the caller's wins.
    given = {name.lower() for name in headers}
    fields = {name: value for name, value in fields.items() if name.lower() not in given}
    lines = [f"GET {path or '/'} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in {**fields, **headers}.items()]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("path and headers must not contain line breaks")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


async def _get(host: str, port: int, head: bytes, *, tls: bool) -> HttpReply:
    reader, writer = await asyncio.open_connection(
        host, port, ssl=_unverified() if tls else None, limit=_MAX_HEAD
    )
    try:
        writer.write(head)
        await writer.drain()
        raw = await reader.readuntil(b"\r\n\r\n")
        status_line, *lines = raw.decode("latin-1").split("\r\n")
        protocol, _, rest = status_line.partition(" ")
        if not protocol.startswith("HTTP/1."):
            raise ValueError(f"the reply is not HTTP: {status_line[:80]!r}")
        fields = dict(_field(line) for line in lines if ":" in line)
        return HttpReply(int(rest[:3]), await _read_body(reader, fields))
    except asyncio.LimitOverrunError as error:
        raise ValueError("the reply's header is too long") from error
    finally:
        writer.close()


def _field(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip().lower(), value.strip()


async def _read_body(reader: asyncio.StreamReader, fields: Mapping[str, str]) -> bytes:
    if "chunked" in fields.get("transfer-encoding", "").lower():
        return await _read_chunks(reader)
    if "content-length" in fields:
        length = int(fields["content-length"])
        _check_size(length)
        return await reader.readexactly(length)
    parts = b""
    while part := await reader.read(_MAX_HEAD):
        parts += part
        _check_size(len(parts))
    return parts


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    parts = b""
    while True:
        size = int((await reader.readline()).split(b";")[0], 16)
        if size == 0:
            return parts
        _check_size(len(parts) + size)
        parts += await reader.readexactly(size)
        await reader.readexactly(2)


def _check_size(length: int) -> None:
    if length > _MAX_BODY:
        raise ValueError(f"the reply's body has more than {_MAX_BODY} bytes")


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
