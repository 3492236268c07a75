"""Image maps of the user, from files."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kthena.cli.errors import CliError, ExitCode

if TYPE_CHECKING:
    from kthena.local.node.images import Entry


def read_image_maps(names: Sequence[str]) -> "tuple[Entry, ...]":
    """The entries of all files, in order.

    Raises:
        CliError: a file cannot be read, or is no image map.
    """
    from kthena.local.node.images import ImageMapError, parse_image_map
    from kthena.machinery.yaml import YamlError, load_documents

    entries: list[Entry] = []
    for name in names:
        try:
            for document in load_documents(Path(name).read_text(encoding="utf-8"), name):
                entries += parse_image_map(document.object, name)
        except OSError as exc:
            raise CliError(f"{name}: {exc.strerror or exc}", exit_code=ExitCode.USAGE) from exc
        except (YamlError, ImageMapError) as exc:
            raise CliError(str(exc), exit_code=ExitCode.USAGE) from exc
    return tuple(entries)
