"""Base64 as Go reads it: strict, with its texts."""

import base64
import binascii
import re
from typing import Final

_STANDARD: Final = re.compile(r"[A-Za-z0-9+/]*", re.ASCII)
_URL: Final = re.compile(r"[A-Za-z0-9_-]*", re.ASCII)


def decode_standard(text: str) -> bytes:
    """The bytes of a padded text; line breaks in it are passed over.

    Raises:
        ValueError: it is no base64.
    """
    text = text.replace("\r", "").replace("\n", "")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise _error(text, _STANDARD) from exc


def decode_raw_url(text: str) -> bytes:
    """The bytes of a text in the alphabet of URLs, without padding.

    Raises:
        ValueError: it is no base64.
    """
    if _URL.fullmatch(text) is None or len(text) % 4 == 1:
        raise _error(text, _URL)
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _error(text: str, alphabet: re.Pattern[str]) -> ValueError:
    match = alphabet.match(text)
    good = match.end() if match else 0
    place = good if good < len(text) else good - good % 4
    return ValueError(f"illegal base64 data at input byte {place}")
