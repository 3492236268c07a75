"""The mock engine as a program: `python -m kthena.local.engine --dialect vllm -- COMMAND LINE`.

The node starts it in place of an image, with the container's own command line; people use
`kthena engine`.
"""

import os
import sys

from kthena.engines.dialects import Engine
from kthena.local.engine.commandline import config_from_command
from kthena.local.engine.config import ConfigError
from kthena.telemetry import logging


def main(argv: list[str]) -> int:
    """Serve until SIGTERM; the exit status."""
    if len(argv) < 3 or argv[0] != "--dialect" or argv[1] not in {"vllm", "sglang"}:
        sys.stderr.write("usage: python -m kthena.local.engine --dialect vllm|sglang -- COMMAND\n")
        return 2
    logging.configure(stream=sys.stdout)
    dialect = Engine.VLLM if argv[1] == "vllm" else Engine.SGLANG
    try:
        config = config_from_command(argv[3:], os.environ, dialect)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    from kthena.local.engine.server import run_engine

    return run_engine(config)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
