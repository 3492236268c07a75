"""Semantic versions (`semver('1.2.3')`): Kubernetes' library, with the texts of its Go parser."""

import re
from dataclasses import dataclass
from functools import total_ordering

from kthena.machinery.cel import typesystem as types
from kthena.machinery.cel.functions import Library, register_guard
from kthena.machinery.cel.values import CelError, register_type
from kthena.machinery.gotext import quote

SEMVER = types.named("kubernetes.Semver")
_NUMBER = re.compile(r"[0-9]*")
_WORD = re.compile(r"[0-9A-Za-z-]*")
_MAX_UINT64 = 2**64 - 1

Part = tuple[bool, int, str]
"""A part of a pre-release: numbers come before words."""


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Semver:
    """A semantic version; what is known of its build counts for nothing."""

    numbers: tuple[int, int, int]
    pre: tuple[Part, ...]

    def _key(self) -> tuple[tuple[int, int, int], bool, tuple[Part, ...]]:
        return (self.numbers, not self.pre, self.pre)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self._key() == other._key()

    def __lt__(self, other: "Semver") -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())


register_guard(SEMVER, (Semver,))
register_type(Semver, SEMVER.name)

LIBRARY = Library()


def _parse(text: str) -> Semver:
    if not text:
        raise CelError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise CelError("No Major.Minor.Patch elements found")
    major, minor = _number(parts[0], "major"), _number(parts[1], "minor")
    rest, plus, build = parts[2].partition("+")
    rest, dash, pre = rest.partition("-")
    patch = _number(rest, "patch")
    found = tuple(map(_pre, pre.split("."))) if dash else ()
    for word in build.split(".") if plus else ():
        if not word:
            raise CelError("Build meta data is empty")
        if not _WORD.fullmatch(word):
            raise CelError(f"Invalid character(s) found in build meta data {quote(word)}")
    return Semver((major, minor, patch), found)


def _number(text: str, name: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise CelError(f"Invalid character(s) found in {name} number {quote(text)}")
    if len(text) > 1 and text[0] == "0":
        noun = f"{name.capitalize()} number"
        raise CelError(f"{noun} must not contain leading zeroes {quote(text)}")
    return _uint64(text)


def _uint64(text: str) -> int:
    if not text:
        raise CelError('strconv.ParseUint: parsing "": invalid syntax')
    if int(text) > _MAX_UINT64:
        raise CelError(f"strconv.ParseUint: parsing {quote(text)}: value out of range")
    return int(text)


def _pre(text: str) -> Part:
    if not text:
        raise CelError("Prerelease is empty")
    if _NUMBER.fullmatch(text):
        if len(text) > 1 and text[0] == "0":
            mistake = "Numeric PreRelease version must not contain leading zeroes"
            raise CelError(f"{mistake} {quote(text)}")
        return (False, _uint64(text), "")
    if not _WORD.fullmatch(text):
        raise CelError(f"Invalid character(s) found in prerelease {quote(text)}")
    return (True, 0, text)


def _normalize(text: str) -> str:
    """Without a leading v and leading zeros, and with all three numbers."""
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[index] = stripped if stripped[:1] in tuple("123456789") else f"0{stripped}"
    if len(parts) < 3 and re.search("[+-]", parts[-1]):
        raise CelError("short version cannot contain PreRelease/Build meta data")
    return ".".join([*parts, "0", "0"][:3])


@LIBRARY.function("semver", [types.STRING], SEMVER)
def _semver(text: str) -> Semver:
    return _parse(text)


@LIBRARY.function("semver", [types.STRING, types.BOOL], SEMVER)
def _semver_normalized(text: str, normalize: bool) -> Semver:  # noqa: FBT001 - as CEL calls it
    return _parse(_normalize(text) if normalize else text)


@LIBRARY.function("isSemver", [types.STRING], types.BOOL)
def _is_semver(text: str) -> bool:
    return _is_semver_normalized(text, False)  # noqa: FBT003 - as CEL calls it


@LIBRARY.function("isSemver", [types.STRING, types.BOOL], types.BOOL)
def _is_semver_normalized(text: str, normalize: bool) -> bool:  # noqa: FBT001 - as CEL calls it
    try:
        _semver_normalized(text, normalize)
    except CelError:
        return False
    return True


LIBRARY.member("major", [SEMVER], types.INT)(lambda version: version.numbers[0])
LIBRARY.member("minor", [SEMVER], types.INT)(lambda version: version.numbers[1])
LIBRARY.member("patch", [SEMVER], types.INT)(lambda version: version.numbers[2])
LIBRARY.member("isGreaterThan", [SEMVER, SEMVER], types.BOOL)(lambda left, right: left > right)
LIBRARY.member("isLessThan", [SEMVER, SEMVER], types.BOOL)(lambda left, right: left < right)
LIBRARY.member("compareTo", [SEMVER, SEMVER], types.INT)(
    lambda left, right: (left > right) - (left < right)
)
