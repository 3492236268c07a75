"""Flags of an engine's command line, split into names and values.

Both engines read theirs with argparse: `--name value`, `--name=value`, switches, and flags with
several values. Which is which is known for the flags that matter here; for the others a word that
does not look like a flag is taken for a value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

_SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-dpr": "--data-parallel-rank",
    "-dpn": "--data-parallel-rank",
    "-dpa": "--data-parallel-address",
    "-dpp": "--data-parallel-rpc-port",
    "-dpl": "--data-parallel-size-local",
    "-q": "--quantization",
    "-O": "--compilation-config",
}
_SWITCH_PREFIXES = ("--enable-", "--disable-", "--no-", "--skip-", "--allow-credentials")
_SWITCHES = frozenset(
    (
        *("--headless", "--enforce-eager", "--trust-remote-code", "--calculate-kv-scales"),
        *("--return-tokens-as-token-ids", "--async-scheduling", "--log-requests", "--show-time"),
        *("--is-embedding", "--fully-sharded-loras", "--data-parallel-hybrid-lb"),
        *("--data-parallel-external-lb", "--multi-modal", "--use-data-parallel"),
    )
)
_SEVERAL = frozenset(
    ("--served-model-name", "--lora-modules", "--lora-paths", "--middleware", "--cuda-graph-sizes")
)


@dataclass(frozen=True, slots=True)
class Flags:
    """Values by canonical name (two dashes, no underscores); a switch has none.

    A flag given twice has the values of its last use, as in argparse.
    """

    values: Mapping[str, tuple[str, ...]]
    positional: tuple[str, ...]

    def text(self, *names: str) -> str:
        """The last value of the first of the flags that is given, or the empty string."""
        for name in names:
            if given := self.values.get(name):
                return given[-1]
        return ""

    def integer(self, *names: str) -> int | None:
        """The value as a decimal integer; None where it is absent or none."""
        text = self.text(*names)
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None

    def has(self, name: str) -> bool:
        """Whether the flag is given; `--no-x` after it takes it back."""
        return name in self.values and self.text(name).lower() != "false"


def parse_flags(words: Sequence[str]) -> Flags:
    """The flags among the words after the program."""
    values: dict[str, tuple[str, ...]] = {}
    positional: list[str] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word == "--":
            positional += words[index:]
            break
        if not _is_flag(word):
            positional.append(word)
            continue
        name, equals, value = word.partition("=")
        name = _SHORT.get(name, name)
        head, dot, tail = name.partition(".")
        name = head.replace("_", "-") + dot + tail
        if name.startswith("--no-") and f"--{name[5:]}" in values:
            del values[f"--{name[5:]}"]
        given = [value] if equals else []
        if not equals and not _is_switch(name):
            limit = len(words) if name in _SEVERAL else index + 1
            while index < min(limit, len(words)) and not _is_flag(words[index]):
                given.append(words[index])
                index += 1
        values[name] = tuple(given)
    return Flags(MappingProxyType(values), tuple(positional))


def _is_flag(word: str) -> bool:
    """A dash and a letter begin a flag; a dash and a digit begin a number."""
    return word.startswith("--") or (word.startswith("-") and word[1:2].isalpha())


def _is_switch(name: str) -> bool:
    return name in _SWITCHES or name.startswith(_SWITCH_PREFIXES)
