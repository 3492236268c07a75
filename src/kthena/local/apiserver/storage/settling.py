"""Nothing leaves the server that a crash could take back: replies wait until what they tell is durable."""

from collections.abc import Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kthena.local.apiserver import errors
from kthena.local.apiserver.replies import error_reply
from kthena.local.apiserver.storage.datafile import StorageError
from kthena.local.apiserver.storage.journal import Journal


class Settling:
    """An ASGI middleware. Pages under the `spared` first parts of a path say how the server is.

    When the data file has failed, every other request is answered with 500.
    """

    def __init__(self, app: ASGIApp, journal: Journal | None, spared: Collection[str]) -> None:
        self._app = app
        self._journal = journal
        self._spared = spared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        journal = self._journal
        if journal is None or scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"].strip("/").partition("/")[0] in self._spared:
            await self._app(scope, receive, send)
            return
        started = False

        async def send_settled(message: Message) -> None:
            nonlocal started
            # The body of a plain reply was made before its start was sent.
            if not started or message.get("more_body"):
                await journal.settled()
            started = True
            await send(message)

        try:
            await self._app(scope, receive, send_settled)
        except StorageError as exc:
            if started:
                # A stream that cannot go on is cut off; its client cannot take that for its end.
                return
            await error_reply(errors.internal_error(str(exc)))(scope, receive, send)
