"""The HTTP routes of the mock engine: the common ones, and those that only one engine has.

Handlers parse, call `service` and answer; they hold no state. Every reply of an error has the
engine's own shape, unknown paths included.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from kthena import __version__
from kthena.local.engine import metrics, payloads, requests, tokens
from kthena.local.engine.errors import RequestError, invalid
from kthena.local.engine.exchange import Exchange, Receive, Scope, Send, send_json
from kthena.local.engine.requests import Body, GenerationRequest
from kthena.local.engine.service import MockEngine
from kthena.telemetry.logging import get_logger

_log = get_logger("engine")

_EMBEDDING_DIMENSIONS: Final = 64
_MAX_DIMENSIONS: Final = 8192

Handler = Callable[[MockEngine, Body], Awaitable[Response] | Response]


def build_app(engine: MockEngine) -> Starlette:
    """The ASGI application of `engine`."""
    routes = _common_routes(engine)
    routes += _vllm_routes(engine) if engine.config.engine == "vllm" else _sglang_routes(engine)
    return Starlette(routes=routes, exception_handlers={HTTPException: _plain_error})


def _common_routes(engine: MockEngine) -> list[Route]:
    parsers: dict[str, Callable[[Body, Any], GenerationRequest]] = {
        "/v1/chat/completions": requests.parse_chat,
        "/v1/completions": requests.parse_completion,
        "/v1/responses": requests.parse_response,
    }
    routes = [
        Route(path, _generation(engine, parse), methods=["POST"]) for path, parse in parsers.items()
    ]
    return [
        *routes,
        Route("/v1/embeddings", _json(engine, _embeddings), methods=["POST"]),
        Route("/v1/models", _get(engine, _models)),
        Route("/health", _get(engine, lambda _: Response())),
        Route("/metrics", _get(engine, _metrics)),
        Route("/tokenize", _json(engine, _tokenize), methods=["POST"]),
        Route("/detokenize", _json(engine, _detokenize), methods=["POST"]),
    ]


def _vllm_routes(engine: MockEngine) -> list[Route]:
    return [
        Route("/version", _get(engine, lambda _: JSONResponse({"version": _version()}))),
        Route("/ping", _get(engine, lambda _: Response()), methods=["GET", "POST"]),
        Route("/v1/load_lora_adapter", _json(engine, _load_lora_vllm), methods=["POST"]),
        Route("/v1/unload_lora_adapter", _json(engine, _unload_lora_vllm), methods=["POST"]),
    ]


def _sglang_routes(engine: MockEngine) -> list[Route]:
    info = _get(engine, _model_info)
    server = _get(engine, _server_info)
    return [
        Route("/health_generate", _get(engine, lambda _: Response())),
        Route("/get_model_info", info),
        Route("/model_info", info),
        Route("/get_server_info", server),
        Route("/server_info", server),
        Route("/v1/models/{name:path}", _model_of(engine)),
        Route("/load_lora_adapter", _json(engine, _load_lora_sglang), methods=["POST"]),
        Route("/unload_lora_adapter", _json(engine, _unload_lora_sglang), methods=["POST"]),
    ]


# --- generation ------------------------------------------------------------------------------


def _generation(
    engine: MockEngine, parse: Callable[[Body, Any], GenerationRequest]
) -> Callable[[Request], Awaitable[Any]]:
    async def handle(request: Request) -> Any:
        try:
            body = requests.parse_json(await request.body())
            parsed = parse(body, engine.config)
            exchange = engine.exchange(parsed, request.headers.get("x-request-id", ""))
        except RequestError as error:
            return _error(engine, error)
        return _GenerationReply(engine, exchange, request.url.path, parsed)

    return handle


class _GenerationReply:
    """The ASGI application that an endpoint returns: it runs the exchange and logs one line."""

    def __init__(
        self, engine: MockEngine, exchange: Exchange, path: str, request: GenerationRequest
    ) -> None:
        self._engine = engine
        self._exchange = exchange
        self._path = path
        self._request = request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 200
        try:
            outcome = await self._exchange.run(scope, receive, send)
        except RequestError as error:
            outcome, status = "error", error.status
            body = error.body(self._engine.config.engine)
            await send_json(send, status, body, self._engine.reply_headers())
        _log.info(
            "answered",
            path=self._path,
            model=self._request.model,
            status=status,
            outcome=outcome,
            prompt_tokens=self._request.total_prompt_tokens,
            stream=self._request.stream,
        )


# --- wrappers --------------------------------------------------------------------------------


def _json(engine: MockEngine, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """A handler of a JSON body whose errors are the engine's."""

    async def handle(request: Request) -> Response:
        try:
            answer = handler(engine, requests.parse_json(await request.body()))
            return answer if isinstance(answer, Response) else await answer
        except RequestError as error:
            return _error(engine, error)

    return handle


def _get(
    engine: MockEngine, handler: Callable[[MockEngine], Response]
) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:  # noqa: ARG001 - the shape of a Starlette endpoint
        return handler(engine)

    return handle


def _error(engine: MockEngine, error: RequestError) -> JSONResponse:
    return JSONResponse(
        error.body(engine.config.engine), error.status, headers=engine.reply_headers()
    )


async def _plain_error(request: Request, error: Exception) -> Response:  # noqa: ARG001 - as above
    """Unknown paths and methods, as FastAPI answers them for both engines."""
    if not isinstance(error, HTTPException):
        raise error
    return JSONResponse({"detail": error.detail}, error.status_code, headers=error.headers)


# --- models, metrics, tokens, embeddings -----------------------------------------------------


def _metrics(engine: MockEngine) -> Response:
    text = metrics.render(engine.config, engine.load, engine.adapters)
    return PlainTextResponse(text, headers={"content-type": metrics.CONTENT_TYPE})


def _model_card(engine: MockEngine, name: str, root: str, parent: str | None) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": engine.created,
        "owned_by": engine.config.engine,
        "root": root,
        "parent": parent,
        "max_model_len": None if parent else engine.config.max_model_len,
    }


def _cards(engine: MockEngine) -> list[dict[str, Any]]:
    base = [_model_card(engine, name, engine.config.root, None) for name in engine.config.models]
    adapters = [
        _model_card(engine, name, path, engine.config.models[0])
        for name, path in engine.adapters.items()
    ]
    return base + adapters


def _models(engine: MockEngine) -> Response:
    return JSONResponse({"object": "list", "data": _cards(engine)})


def _model_of(engine: MockEngine) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        name = request.path_params["name"]
        for card in _cards(engine):
            if card["id"] == name:
                return JSONResponse(card)
        detail = {
            "message": f"The model '{name}' does not exist",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
        return JSONResponse({"error": detail}, 404)

    return handle


def _tokenize(engine: MockEngine, body: Body) -> Response:
    engine.served_model(requests.parse_model(body))
    messages = body.get("messages")
    if isinstance(messages, list):
        text = requests.chat_prompt(messages)
    elif isinstance(body.get("prompt"), str):
        text = body["prompt"]
    else:
        raise invalid("prompt: field required, a string; or messages, a list", "prompt")
    ids = tokens.tokenize(text)
    return JSONResponse(
        {
            "count": len(ids),
            "max_model_len": engine.config.max_model_len,
            "tokens": ids,
            "token_strs": None,
        }
    )


def _detokenize(engine: MockEngine, body: Body) -> Response:
    engine.served_model(requests.parse_model(body))
    ids = body.get("tokens")
    if not isinstance(ids, list) or not all(type(item) is int for item in ids):
        raise invalid("tokens: field required, a list of integers", "tokens")
    try:
        text = tokens.detokenize(ids)
    except ValueError as error:
        raise RequestError(400, str(error), param="tokens") from error
    return JSONResponse({"prompt" if engine.config.engine == "vllm" else "text": text})


def _embeddings(engine: MockEngine, body: Body) -> Response:
    model = engine.served_model(requests.parse_model(body))
    texts = requests.parse_embedding_input(body)
    dimensions = body.get("dimensions", _EMBEDDING_DIMENSIONS)
    if type(dimensions) is not int or not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise invalid(f"dimensions: must be an integer from 1 to {_MAX_DIMENSIONS}", "dimensions")
    encoding = body.get("encoding_format", "float")
    if encoding not in {"float", "base64"}:
        raise invalid("encoding_format: must be 'float' or 'base64'", "encoding_format")
    count = sum(len(tokens.tokenize(text)) for text in texts)
    engine.load.prompt_tokens += count
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": payloads.encode_embedding(
                payloads.embedding(model, text, dimensions), encoding
            ),
        }
        for index, text in enumerate(texts)
    ]
    usage = payloads.usage(count, 0)
    return JSONResponse({"object": "list", "model": model, "data": data, "usage": usage})


def _model_info(engine: MockEngine) -> Response:
    return JSONResponse(
        {
            "model_path": engine.config.root,
            "tokenizer_path": engine.config.root,
            "is_generation": True,
            "preferred_sampling_params": None,
        }
    )


def _server_info(engine: MockEngine) -> Response:
    config = engine.config
    mode = config.kv.role if config.kv.role in {"prefill", "decode"} else "null"
    return JSONResponse(
        {
            "model_path": config.root,
            "served_model_name": config.models[0],
            "context_length": config.max_model_len,
            "disaggregation_mode": mode,
            "disaggregation_bootstrap_port": config.kv.bootstrap_port,
            "dp_size": 1,
            "tp_size": 1,
            "version": _version(),
        }
    )


def _version() -> str:
    return f"{__version__}+mock"


# --- LoRA ------------------------------------------------------------------------------------


def _load_lora_vllm(engine: MockEngine, body: Body) -> Response:
    name, path = body.get("lora_name"), body.get("lora_path")
    if not isinstance(name, str) or not isinstance(path, str) or not name or not path:
        raise RequestError(
            400, "Both 'lora_name' and 'lora_path' must be provided.", kind="InvalidUserInput"
        )
    if name in engine.adapters and body.get("load_inplace") is not True:
        raise RequestError(
            400,
            f"The lora adapter '{name}' has already been loaded. If you want to load the adapter "
            "in place, set 'load_inplace' to True.",
            kind="InvalidUserInput",
        )
    engine.adapters[name] = path
    return PlainTextResponse(f"Success: LoRA adapter '{name}' added successfully.")


def _unload_lora_vllm(engine: MockEngine, body: Body) -> Response:
    name = body.get("lora_name")
    if not isinstance(name, str) or not name:
        raise RequestError(
            400,
            "'lora_name' needs to be provided to unload a LoRA adapter.",
            kind="InvalidUserInput",
        )
    if name not in engine.adapters:
        raise RequestError(404, f"The lora adapter '{name}' cannot be found.", kind="NotFoundError")
    del engine.adapters[name]
    return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")


def _load_lora_sglang(engine: MockEngine, body: Body) -> Response:
    name, path = body.get("lora_name"), body.get("lora_path")
    if not isinstance(name, str) or not isinstance(path, str) or not name or not path:
        raise invalid("lora_name and lora_path: fields required, strings", "lora_name")
    if name in engine.adapters:
        return _lora_result(engine, f"LoRA with name {name} already exists.")
    engine.adapters[name] = path
    return _lora_result(engine)


def _unload_lora_sglang(engine: MockEngine, body: Body) -> Response:
    name = body.get("lora_name")
    if not isinstance(name, str) or not name:
        raise invalid("lora_name: field required, a string", "lora_name")
    if name not in engine.adapters:
        return _lora_result(engine, f"LoRA with name {name} does not exist.")
    del engine.adapters[name]
    return _lora_result(engine)


def _lora_result(engine: MockEngine, problem: str = "") -> Response:
    body = {
        "success": not problem,
        "error_message": problem,
        "loaded_adapters": dict(engine.adapters),
    }
    return JSONResponse(body, 400 if problem else 200)
