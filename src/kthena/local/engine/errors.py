"""Errors of the mock engine, in the shape of the engine that it plays.

vLLM nests them (`{"error": {...}}`), SGLang does not (`{"object": "error", ...}`); the words of the
common ones follow each engine's own, since clients match on them.
"""

from typing import Any, Literal, TypeAlias

Dialect: TypeAlias = Literal["vllm", "sglang"]


class RequestError(Exception):
    """A request that is answered with an error status.

    `kind` is what the engines put in `type`; `param` names the offending field where one is known.
    """

    def __init__(
        self, status: int, message: str, *, kind: str = "BadRequestError", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param

    def body(self, engine: Dialect) -> dict[str, Any]:
        """The JSON body of the reply."""
        detail = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.status,
        }
        return {"error": detail} if engine == "vllm" else {"object": "error", **detail}


def invalid(message: str, param: str | None = None) -> RequestError:
    """A body that does not validate: 400, with the type that both engines give to it."""
    return RequestError(400, message, kind="Bad Request", param=param)


def unknown_model(name: str) -> RequestError:
    """404 in vLLM's words.

    SGLang serves whatever name it is asked for; the mock refuses there too, since a route to the
    wrong model would otherwise go unseen.
    """
    return RequestError(
        404, f"The model `{name}` does not exist.", kind="NotFoundError", param="model"
    )


def context_exceeded(engine: Dialect, limit: int, prompt: int, completion: int) -> RequestError:
    """400: prompt and completion do not fit the context of the model."""
    total = prompt + completion
    if engine == "vllm":
        message = (
            f"This model's maximum context length is {limit} tokens. However, you requested "
            f"{total} tokens ({prompt} in the messages, {completion} in the completion). "
            "Please reduce the length of the messages or completion."
        )
    else:
        message = (
            f"Requested token count exceeds the model's maximum context length of {limit} tokens. "
            f"You requested a total of {total} tokens: {prompt} tokens from the input messages and "
            f"{completion} tokens for the completion."
        )
    return RequestError(400, message)
