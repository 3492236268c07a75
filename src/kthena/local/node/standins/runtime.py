"""The runtime sidecar: `/health`, the engine's metrics under Kthena's names too, LoRA requests.

Command line and routes are the real one's. `localhost` in the engine's address means the pod, as it
does in a container. The KV-event pipeline to Redis is left out, and downloads fetch nothing.
"""
# A program speaks on standard output:
# ruff: noqa: T201

import argparse
import http.client
import json
import os
import signal
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast
from urllib.parse import urlsplit

from kthena.local.node.names import ENV_ADDRESS

_TIMEOUT_S = 30.0
_LOCAL = {"", "localhost", "127.0.0.1", "0.0.0.0"}  # noqa: S104 - a name to recognise, not to bind

STANDARD_NAMES = {
    "vllm": {
        "vllm:generation_tokens_total": "kthena:generation_tokens_total",
        "vllm:num_requests_waiting": "kthena:num_requests_waiting",
        "vllm:time_to_first_token_seconds": "kthena:time_to_first_token_seconds",
        "vllm:time_per_output_token_seconds": "kthena:time_per_output_token_seconds",
        "vllm:inter_token_latency_seconds": "kthena:time_per_output_token_seconds",
        "vllm:e2e_request_latency_seconds": "kthena:e2e_request_latency_seconds",
    },
    "sglang": {
        "sglang:generation_tokens_total": "kthena:generation_tokens_total",
        "sglang:num_queue_reqs": "kthena:num_requests_waiting",
        "sglang:time_to_first_token_seconds": "kthena:time_to_first_token_seconds",
        "sglang:inter_token_latency_seconds": "kthena:time_per_output_token_seconds",
        "sglang:e2e_request_latency_seconds": "kthena:e2e_request_latency_seconds",
    },
}
"""Names of the engine's families, and the standard names that they get beside their own."""


class EngineError(Exception):
    """The engine cannot be reached."""


def main(argv: list[str]) -> int:
    """Serve until SIGTERM; the exit status."""
    options = _parse(argv)
    engine = options.engine.lower()
    if engine == "vllmdisaggregated":
        engine = "vllm"
    if engine not in STANDARD_NAMES:
        print(f"unsupported engine {options.engine!r}; known: vllm, sglang", file=sys.stderr)
        return 1
    address = os.environ.get(ENV_ADDRESS) or "127.0.0.1"
    parts = urlsplit(options.engine_base_url)
    host = address if (parts.hostname or "") in _LOCAL else str(parts.hostname)
    try:
        server = _Server((address, options.port), _Handler)
    except OSError as error:
        print(f"cannot listen on {address}:{options.port}: {error.strerror}", file=sys.stderr)
        return 1
    server.engine = _Engine(engine, host, parts.port or 80, options.engine_metrics_path)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(f"mock runtime of {options.pod} serves on {address}:{options.port}", flush=True)
    server.serve_forever()
    return 0


def standardise(text: str, names: dict[str, str]) -> str:
    """The exposition text with a renamed copy after each family that has a standard name."""
    lines: list[str] = []
    for name, family in _families(text):
        lines += family
        standard = names.get(name)
        if standard:
            lines += [line.replace(name, standard, 1) for line in family]
    return "".join(f"{line}\n" for line in lines)


def _families(text: str) -> Iterator[tuple[str, list[str]]]:
    """The lines of each family, which begin at its first HELP or TYPE line."""
    name, family = "", list[str]()
    for line in text.splitlines():
        words = line.split(" ", 3)
        if line.startswith("# ") and len(words) > 2 and words[2] != name:
            if family:
                yield name, family
            name, family = words[2], []
        family.append(line)
    if family:
        yield name, family


class _Engine:
    """The engine beside this sidecar."""

    def __init__(self, kind: str, host: str, port: int, metrics_path: str) -> None:
        self.names = STANDARD_NAMES[kind]
        self.metrics_path = metrics_path
        self._host = host
        self._port = port

    def request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body of the engine's answer.

        Raises:
            EngineError: there was none.
        """
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            return reply.status, reply.read()
        except (OSError, http.client.HTTPException) as error:
            raise EngineError(f"engine {self._host}:{self._port}: {error}") from error
        finally:
            connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    engine: _Engine


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def _engine(self) -> _Engine:
        return cast("_Server", self.server).engine

    def do_GET(self) -> None:
        """Health and metrics."""
        if self.path == "/health":
            self._json(200, {"status": "healthy", "service": "runtime"})
        elif self.path == "/metrics":
            self._metrics()
        else:
            self._json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        """LoRA adapters and downloads."""
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            self._json(400, {"detail": "the body must be a JSON object"})
        elif self.path == "/v1/load_lora_adapter":
            lora = {"lora_name": body.get("lora_name"), "lora_path": body.get("output_dir")}
            self._forward(json.dumps(lora).encode())
        elif self.path == "/v1/unload_lora_adapter":
            self._forward(raw)
        elif self.path == "/v1/download_model":
            self._download(body)
        else:
            self._json(404, {"detail": "Not Found"})

    def _metrics(self) -> None:
        engine = self._engine
        try:
            status, body = engine.request("GET", engine.metrics_path)
        except EngineError as error:
            self._json(502, {"detail": str(error)})
            return
        if not 200 <= status < 300:
            self._json(502, {"detail": f"the engine answered {status}"})
            return
        text = standardise(body.decode("utf-8", "replace"), engine.names)
        self._reply(200, text.encode(), "text/plain; charset=utf-8")

    def _forward(self, body: bytes) -> None:
        try:
            status, answer = self._engine.request("POST", self.path, body)
        except EngineError as error:
            self._json(500, {"detail": str(error)})
            return
        text = answer.decode("utf-8", "replace")
        if status >= 400:
            self._json(status, {"detail": f"HTTP {status}: {text}"})
        else:
            self._json(status, {"message": text})

    def _download(self, body: dict[str, object]) -> None:
        source, target = body.get("source"), body.get("output_dir")
        if not source or not target:
            self._json(400, {"detail": "source and output_dir are required"})
            return
        self._json(
            200,
            {
                "status": "completed",
                "message": "mock runtime: nothing was fetched",
                "source": source,
                "output_dir": target,
            },
        )

    def _json(self, status: int, body: object) -> None:
        self._reply(status, json.dumps(body).encode(), "application/json")

    def _reply(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Requests are not logged: probes would fill the log."""


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="runtime", allow_abbrev=False)
    parser.add_argument("-E", "--engine", required=True)
    parser.add_argument("-H", "--host", default="")
    parser.add_argument("-P", "--port", type=int, default=9000)
    parser.add_argument("-B", "--engine-base-url", default="http://localhost:8000")
    parser.add_argument("-M", "--engine-metrics-path", default="/metrics")
    parser.add_argument("-I", "--pod", required=True)
    parser.add_argument("-N", "--model", required=True)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
