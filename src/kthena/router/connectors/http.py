"""http: prefill and decode share their cache by themselves, so the router only keeps the order.

As Kthena's `http` connector: the prefill request asks for one token without streaming; once it is
answered with 2xx, the decode request carries the client's body. What prefill generated is dropped.
"""

from kthena.router.body.scan import JsonBody
from kthena.router.body.splice import prefill_body, rename_model
from kthena.router.connectors.contract import Answer, ReplyT, Send
from kthena.router.scheduler.pairs import Pair


class HttpConnector:
    """See the module."""

    async def run(
        self, pair: Pair, body: JsonBody, model: str | None, send: Send[ReplyT]
    ) -> Answer[ReplyT]:
        """See `Connector`."""
        prefill = await send(pair.prefill, prefill_body(body, model))
        if not 200 <= prefill.reply.status < 300:
            return prefill
        prefill.reply.discard()
        return await send(pair.decode, rename_model(body, model))
