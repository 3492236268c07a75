"""How the two legs of an SGLang request meet: the prefill engine's bootstrap server.

As in SGLang, the prefill engine listens on its bootstrap port, the decode engine asks it for the
room that both requests name, and the prefill request ends only when its KV cache was taken. Here
the cache is a digest of model and prompt, sent as the body of a plain HTTP GET. A leg that waits
for a partner that never comes fails after a timeout, as the real engines' requests do.
"""

import asyncio
from dataclasses import dataclass, field

from kthena.local.engine.config import EngineConfig
from kthena.local.engine.errors import RequestError
from kthena.local.engine.kvtransfer import Rendezvous
from kthena.local.node.httpget import HttpGetError, http_get

_MAX_REQUEST_LINE = 4096


@dataclass(slots=True)
class _Room:
    """Mutable state of one room: `offered` resolves to the digest, `taken` when it was fetched."""

    offered: asyncio.Future[str] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    taken: asyncio.Event = field(default_factory=asyncio.Event)


class BootstrapServer:
    """The rooms of one prefill engine, served over HTTP.

    Mutable state: one room per id from the arrival of either leg until the prefill leg ends.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._rooms: dict[int, _Room] = {}
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen on the engine's address.

        Raises:
            OSError: the port is taken.
        """
        self._server = await asyncio.start_server(
            self._answer, self._config.host, self._config.kv.bootstrap_port
        )

    @property
    def port(self) -> int:
        """The port that is listened on."""
        if self._server is None:
            return self._config.kv.bootstrap_port
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening; open rooms are dropped."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def offer(self, room: int, digest: str) -> None:
        """Offer the KV cache of a prompt and wait until the decode leg took it.

        Raises:
            RequestError: no decode leg came in time, or the room is in use.
        """
        entry = self._rooms.setdefault(room, _Room())
        if entry.offered.done():
            raise RequestError(
                500, f"bootstrap room {room} is in use by another request", kind="KVTransferError"
            )
        entry.offered.set_result(digest)
        try:
            async with asyncio.timeout(self._config.kv.timeout_s):
                await entry.taken.wait()
        except TimeoutError as error:
            raise RequestError(
                500,
                f"no decode engine took the KV cache of bootstrap room {room} within "
                f"{self._config.kv.timeout_s:g} s; prefill and decode must be sent at the same time",
                kind="KVTransferError",
            ) from error
        finally:
            self._rooms.pop(room, None)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request per connection: `GET /rooms/<id>`."""
        try:
            line = await reader.readuntil(b"\r\n\r\n")
            room = self._room_of(line)
            status, body = ("404 Not Found", "") if room is None else await self._take(room)
            reply = (
                f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n"
                f"Connection: close\r\n\r\n{body}"
            )
            writer.write(reply.encode())
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # The decode engine left; its own request reports why.
        finally:
            writer.close()

    def _room_of(self, head: bytes) -> int | None:
        method, _, rest = head[:_MAX_REQUEST_LINE].decode("latin-1").partition(" ")
        path = rest.split(" ", 1)[0]
        text = path.removeprefix("/rooms/")
        return int(text) if method == "GET" and text != path and text.isdecimal() else None

    async def _take(self, room: int) -> tuple[str, str]:
        """Wait for the prefill leg of `room` and hand its digest over."""
        entry = self._rooms.setdefault(room, _Room())
        try:
            async with asyncio.timeout(self._config.kv.timeout_s):
                digest = await asyncio.shield(entry.offered)
        except TimeoutError:
            self._rooms.pop(room, None)
            return "504 Gateway Timeout", "no prefill request came for this room"
        entry.taken.set()
        return "200 OK", digest


async def take_from(place: Rendezvous, timeout_s: float) -> str:
    """Fetch the digest of a room from the prefill engine that the decode request names.

    Raises:
        RequestError: the engine cannot be reached, or no prefill request came.
    """
    where = f"{place.host}:{place.port}"
    try:
        reply = await http_get(place.host, place.port, f"/rooms/{place.room}", timeout_s=timeout_s)
    except HttpGetError as error:
        raise RequestError(
            500,
            f"the prefill engine at bootstrap_host {where} cannot be reached: {error}",
            kind="KVTransferError",
        ) from error
    if reply.status != 200:
        raise RequestError(
            500,
            f"the prefill engine at {where} has no KV cache for bootstrap room {place.room}: "
            f"{reply.body.decode(errors='replace')}",
            kind="KVTransferError",
        )
    return reply.body.decode()
