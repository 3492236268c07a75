"""The mock tokenizer: text to token ids and back, without loss and without state.

Words of a small vocabulary are one token each (with or without a leading space); everything else is
cut into chunks of at most three bytes of UTF-8. So `detokenize(tokenize(text)) == text` for every
text, two processes agree on every id, and a generated answer has as many tokens as it says.
Real tokenizers differ in ids and counts; about four characters a token is the usual ratio.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

_TEXT: Final = (
    "the a of to and in that it is was for on with as by at from this which or an be are have "
    "not but one all can more when there their will each about how up out them then many some "
    "so these would other into has two like him see time could no make than first been call "
    "who its now find long down day did get come made may part over new sound take only little "
    "work know place year live me back give most very after thing our just name good sentence "
    "man think say great where help through much before line right too mean old any same tell "
    "boy follow came want show also around form three small set put end does another well large "
    "must big even such because turn here why ask went men read need land different home us "
    "move try kind hand picture again change off play spell air away animal house point page "
    "mock answer hello assistant user system question word thank please"
)
WORDS: Final = tuple(_TEXT.split())
"""The words that answers are made of."""

_SYMBOLS: Final = (".", ",", "!", "?", ":", ";", "\n", " ")
_PIECES: Final = _SYMBOLS + tuple(
    piece
    for word in WORDS
    for piece in (word, f" {word}", word.capitalize(), f" {word.capitalize()}")
)
_IDS: Final = {piece: number for number, piece in enumerate(_PIECES)}
_CHUNK: Final = 3
_OFFSETS: Final = (4096, 4096 + 256, 4096 + 256 + 65536)
"""First id of the chunks of one, two and three bytes."""
VOCABULARY_SIZE: Final = _OFFSETS[2] + 256**3

_SPLIT: Final = re.compile(r" ?[^\W_]+|\s+|[^\w\s]+|_+")
_ERRORS: Final = "surrogatepass"


def tokenize(text: str) -> list[int]:
    """The token ids of `text`. Linear in its length; lone surrogates are kept."""
    ids: list[int] = []
    for match in _SPLIT.finditer(text):
        known = _IDS.get(match[0])
        if known is not None:
            ids.append(known)
            continue
        raw = match[0].encode("utf-8", _ERRORS)
        for start in range(0, len(raw), _CHUNK):
            chunk = raw[start : start + _CHUNK]
            ids.append(_OFFSETS[len(chunk) - 1] + int.from_bytes(chunk, "big"))
    return ids


def _bytes_of(token: int) -> bytes:
    if 0 <= token < len(_PIECES):
        return _PIECES[token].encode()
    for size in (3, 2, 1):
        offset = _OFFSETS[size - 1]
        if offset <= token < offset + 256**size:
            return (token - offset).to_bytes(size, "big")
    raise ValueError(f"token id {token} is not in the vocabulary")


def pieces(ids: Iterable[int]) -> Iterator[str]:
    """The text that each token adds; empty while a character is incomplete.

    Raises:
        ValueError: an id is not in the vocabulary.
    """
    pending = b""
    for token in ids:
        pending += _bytes_of(token)
        end = _complete(pending)
        yield _decode(pending[:end])
        pending = pending[end:]
    if pending:
        yield _decode(pending)


def _complete(raw: bytes) -> int:
    """How many bytes hold whole characters: all, or all but a character that is cut at the end."""
    for back in range(1, min(len(raw), 3) + 1):
        byte = raw[-back]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(raw) - back if needed > back else len(raw)
        if byte < 0x80:
            break
    return len(raw)


def _decode(raw: bytes) -> str:
    """The text, lone surrogates included; what is no UTF-8 at all is replaced."""
    try:
        return raw.decode("utf-8", _ERRORS)
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace")


def detokenize(ids: Sequence[int]) -> str:
    """The text of `ids`.

    Raises:
        ValueError: an id is not in the vocabulary.
    """
    return "".join(pieces(ids))
