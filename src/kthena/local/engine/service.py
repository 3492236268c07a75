"""The state of one mock engine, and how it turns a checked request into an exchange.

Owns the adapters, the load, the fault counter and the meeting rooms of an SGLang prefill engine.
The HTTP routes are in `app`, the pacing of replies in `exchange`.
"""

import uuid
from dataclasses import dataclass

from kthena.kube.clock import Clock
from kthena.local.engine import kvtransfer
from kthena.local.engine.bootstrap import BootstrapServer, take_from
from kthena.local.engine.config import EngineConfig, Faults
from kthena.local.engine.errors import RequestError, unknown_model
from kthena.local.engine.exchange import Exchange, Handshake, Runtime
from kthena.local.engine.generation import generate
from kthena.local.engine.load import Load
from kthena.local.engine.payloads import Reply
from kthena.local.engine.requests import GenerationRequest
from kthena.telemetry.logging import get_logger

_log = get_logger("engine")

HEADER_KV = "x-kthena-mock-kv-transfer"
HEADER_POD = "x-kthena-mock-pod"

_ID_PREFIXES = {"chat": "chatcmpl-", "completions": "cmpl-", "responses": "resp_"}


class MockEngine:
    """One engine.

    Mutable state: the loaded adapters (name to path), the count of generation requests that the
    faults go by, the load, and the bootstrap rooms.
    """

    def __init__(self, config: EngineConfig, clock: Clock) -> None:
        self.config = config
        self.load = Load(config.max_num_seqs)
        self.adapters = {module.name: module.path for module in config.lora_modules}
        self.bootstrap: BootstrapServer | None = None
        if config.kv.connector == "sglang" and config.kv.role == "prefill":
            self.bootstrap = BootstrapServer(config)
        self.created = int(clock.now().timestamp())
        self._clock = clock
        self._runtime = Runtime(self.load, clock, config.timing, config.faults)
        self._requests = 0

    def served_model(self, name: str) -> str:
        """The served name or adapter that a request for `name` gets; empty means the base model.

        SGLang also takes `base:adapter`.

        Raises:
            RequestError: 404 for a name that is not served.
        """
        if not name:
            return self.config.models[0]
        if name in self.config.models or name in self.adapters:
            return name
        base, _, adapter = name.rpartition(":")
        known = base in self.config.models and adapter in self.adapters
        if self.config.engine == "sglang" and known:
            return adapter
        raise unknown_model(name)

    def exchange(self, request: GenerationRequest, request_id: str) -> Exchange:
        """The exchange that answers `request`.

        Raises:
            RequestError: the model is unknown, or its KV-transfer fields are refused.
        """
        model = self.served_model(request.model)
        verdict = self._check_transfer(request)
        reply = Reply(
            request=request,
            id=_ID_PREFIXES[request.endpoint] + (request_id or uuid.uuid4().hex),
            model=request.model or model,
            created=int(self._clock.now().timestamp()),
            choices=tuple(
                generate(model, prompt, request.sampling, index)
                for prompt in request.prompts
                for index in range(request.n)
            ),
            kv_transfer_params=kvtransfer.reply_params(request, self.config),
        )
        self._requests += 1
        return Exchange(
            reply,
            self._runtime,
            fault=fault_of(self._requests, self.config.faults),
            handshake=self._handshake(request, verdict),
            headers=self.reply_headers(verdict),
        )

    def reply_headers(self, verdict: kvtransfer.Check | None = None) -> dict[str, str]:
        """Headers of the mock's own: which pod answered, and the verdict on KV-transfer fields."""
        headers = {HEADER_POD: self.config.pod} if self.config.pod else {}
        if verdict is not None and self.config.kv.role != "none":
            headers[HEADER_KV] = verdict.verdict
        return headers

    def _check_transfer(self, request: GenerationRequest) -> kvtransfer.Check:
        kv = self.config.kv
        verdict = kvtransfer.check(request, self.config)
        self.load.kv_checks[verdict.verdict] += 1
        if verdict.fits:
            return verdict
        _log.warning("KV transfer does not fit", verdict=verdict.verdict, detail=verdict.detail)
        sglang_needs_it = kv.connector == "sglang" and verdict.verdict in {"missing", "mismatch"}
        if kv.strict or sglang_needs_it:
            field = "bootstrap_room" if kv.connector == "sglang" else "kv_transfer_params"
            raise RequestError(400, f"Invalid request: {verdict.detail}", param=field)
        return verdict

    def _handshake(self, request: GenerationRequest, verdict: kvtransfer.Check) -> Handshake | None:
        if self.config.kv.connector != "sglang" or verdict.verdict != "ok":
            return None
        place = kvtransfer.rendezvous(request.body, self.config)
        digest = kvtransfer.prompt_digest(self.config.models[0], request.prompts)
        if self.bootstrap is not None:
            return _PrefillLeg(self.bootstrap, place.room, digest)
        return _DecodeLeg(place, digest, self.config.kv.timeout_s)


@dataclass(frozen=True, slots=True)
class _PrefillLeg:
    rooms: BootstrapServer
    room: int
    digest: str

    async def before_prompt(self) -> None:
        """Nothing to wait for: the prompt is computed here."""

    async def after_prompt(self) -> None:
        """Hold the reply until the decode leg took the cache, as SGLang does."""
        await self.rooms.offer(self.room, self.digest)


@dataclass(frozen=True, slots=True)
class _DecodeLeg:
    place: kvtransfer.Rendezvous
    digest: str
    timeout_s: float

    async def before_prompt(self) -> None:
        """Take the cache of the prefill leg and compare it with the prompt."""
        taken = await take_from(self.place, self.timeout_s)
        if taken != self.digest:
            raise RequestError(
                500,
                f"the KV cache of bootstrap room {self.place.room} is of another prompt or model",
                kind="KVTransferError",
            )

    async def after_prompt(self) -> None:
        """Nothing is handed on."""


def fault_of(count: int, faults: Faults) -> str:
    """The failure of the request number `count` (from 1): `error`, `hang`, `reset` or none.

    Each rate hits where its running total passes a whole number, so that a rate of 0.25 means
    exactly the requests 4, 8, 12 and so on. When several are due, the first in this order acts.
    """
    for name, rate in (
        ("error", faults.error_rate),
        ("hang", faults.hang_rate),
        ("reset", faults.reset_rate),
    ):
        # The small term absorbs binary rounding of rates such as 0.1.
        if int(count * rate + 1e-9) > int((count - 1) * rate + 1e-9):
            return name
    return ""
