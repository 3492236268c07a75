"""The KV-transfer fields of requests, checked against the role and connector of the engine.

Prefill/decode disaggregation only works when router and engines speak one dialect: NIXL and
Mooncake carry `kv_transfer_params` from the prefill reply to the decode request, SGLang pairs both
legs by `bootstrap_room`, LMCache and plain http carry nothing. A real engine often falls back in
silence; here each request gets a verdict that metrics, the log and a reply header show.
"""

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from kthena.local.engine import tokens
from kthena.local.engine.config import EngineConfig
from kthena.local.engine.requests import GenerationRequest

Verdict: TypeAlias = Literal["none", "ok", "missing", "mismatch", "foreign"]

BLOCK_SIZE: Final = 16
_PARAMS: Final = "kv_transfer_params"
_BOOTSTRAP: Final = ("bootstrap_room", "bootstrap_host", "bootstrap_port")
_REMOTE_FIELDS: Final = ("remote_engine_id", "remote_block_ids", "remote_host", "remote_port")


@dataclass(frozen=True, slots=True)
class Check:
    """The verdict on one request.

    `none`: no transfer asked for, none needed; `ok`: fits; `missing`: the role needs fields that
    are absent; `mismatch`: they belong to another prompt, model or side; `foreign`: they belong to
    another dialect. `detail` says what was expected and what came.
    """

    verdict: Verdict
    detail: str = ""

    @property
    def fits(self) -> bool:
        """Whether a strict engine serves the request."""
        return self.verdict in {"none", "ok"}


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where the two legs of an SGLang request meet; the prefill leg needs no host."""

    room: int
    host: str
    port: int


def check(request: GenerationRequest, config: EngineConfig) -> Check:
    """The verdict on a request's KV-transfer fields."""
    kv = config.kv
    params = request.body.get(_PARAMS)
    has_bootstrap = any(request.body.get(field) is not None for field in _BOOTSTRAP)
    if kv.connector == "sglang":
        if params is not None:
            return Check("foreign", f"{_PARAMS} is vLLM's; SGLang pairs by bootstrap_room")
        return _check_bootstrap(request.body, config)
    if has_bootstrap:
        return Check("foreign", "bootstrap_* is SGLang's; this engine does not know it")
    if kv.connector in {"nixl", "mooncake"}:
        return _check_params(params, request, config)
    if params is not None:
        return Check("foreign", f"{_PARAMS} given, but the engine has no connector that uses it")
    return Check("none")


def reply_params(request: GenerationRequest, config: EngineConfig) -> dict[str, Any] | None:
    """What a prefill engine puts in `kv_transfer_params` of its reply; None for every other reply.

    The fields are those of vLLM's NIXL connector; the block ids follow from model and prompt, so
    that the decode engine can tell whether they are of its own request.
    """
    params = request.body.get(_PARAMS)
    if config.kv.connector not in {"nixl", "mooncake"} or config.kv.role == "decode":
        return None
    if not isinstance(params, Mapping) or params.get("do_remote_decode") is not True:
        return None
    return {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": block_ids(config.models[0], request.prompts),
        "remote_engine_id": engine_id(config),
        "remote_host": config.host,
        "remote_port": config.kv.side_channel_port,
        "tp_size": 1,
    }


def engine_id(config: EngineConfig) -> str:
    """The id of the engine's transfer agent: one for each address and port."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"kthena://{config.host}:{config.port}"))


def block_ids(model: str, prompts: tuple[str, ...]) -> list[int]:
    """One id per block of 16 prompt tokens, chained, so that equal ids mean equal prefixes."""
    ids: list[int] = []
    for prompt in prompts:
        chain = model.encode("utf-8", "surrogatepass")
        sequence = tokens.tokenize(prompt)
        for start in range(0, len(sequence), BLOCK_SIZE):
            block = repr(sequence[start : start + BLOCK_SIZE]).encode()
            chain = hashlib.blake2b(chain + block, digest_size=8).digest()
            ids.append(int.from_bytes(chain[:4], "big") >> 1)
    return ids


def prompt_digest(model: str, prompts: tuple[str, ...]) -> str:
    """What the two legs of an SGLang pair compare."""
    text = repr((model, prompts)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def rendezvous(body: Mapping[str, Any], config: EngineConfig) -> Rendezvous:
    """The meeting place that a checked SGLang request names. Batches send lists; the first counts."""
    port = _first(body.get("bootstrap_port"))
    return Rendezvous(
        room=int(_first(body.get("bootstrap_room"))),
        host=str(_first(body.get("bootstrap_host")) or ""),
        port=config.kv.bootstrap_port if port is None else int(port),
    )


def _check_params(params: object, request: GenerationRequest, config: EngineConfig) -> Check:
    role = config.kv.role
    if params is None:
        needed = role in {"prefill", "decode"}
        return (
            Check("missing", f"the {role} role needs {_PARAMS}, none given")
            if needed
            else Check("none")
        )
    if not isinstance(params, Mapping):
        return Check("mismatch", f"{_PARAMS} must be an object")
    if params.get("do_remote_decode") is True:
        if role == "decode":
            return Check("mismatch", "do_remote_decode was sent to the decode engine")
        return Check("ok")
    if role == "prefill":
        return Check("mismatch", "the prefill engine needs do_remote_decode")
    return _check_remote(params, request, config)


def _check_remote(
    params: Mapping[str, Any], request: GenerationRequest, config: EngineConfig
) -> Check:
    """The verdict on parameters that came from a prefill engine's reply."""
    if params.get("do_remote_prefill") is not True:
        return Check("missing", "neither do_remote_decode nor do_remote_prefill is true")
    absent = [field for field in _REMOTE_FIELDS if params.get(field) is None]
    if absent:
        return Check("missing", f"{_PARAMS} lacks {', '.join(absent)}")
    if params["remote_engine_id"] == engine_id(config):
        return Check("mismatch", "remote_engine_id is this engine's own")
    if params["remote_block_ids"] != block_ids(config.models[0], request.prompts):
        return Check("mismatch", "remote_block_ids are of another prompt or model")
    return Check("ok")


def _check_bootstrap(body: Mapping[str, Any], config: EngineConfig) -> Check:
    role = config.kv.role
    if role not in {"prefill", "decode"}:
        return Check("none")
    room, port = _first(body.get("bootstrap_room")), _first(body.get("bootstrap_port"))
    if room is None:
        return Check("missing", "Disaggregated request received without bootstrap room id.")
    if type(room) is not int or room < 0:
        return Check("mismatch", "bootstrap_room must be a non-negative integer")
    if port is not None and type(port) is not int:
        return Check("mismatch", "bootstrap_port must be an integer")
    if role == "decode" and not _first(body.get("bootstrap_host")):
        return Check("missing", "the decode leg needs bootstrap_host, the prefill engine's address")
    return Check("ok")


def _first(value: Any) -> Any:
    if isinstance(value, list):
        return value[0] if value else None
    return value
