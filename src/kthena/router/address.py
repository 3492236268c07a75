"""Where an engine listens."""

from typing import NamedTuple


class Address(NamedTuple):
    """Where an engine listens, and how that reads in a URL or a `Host` header."""

    host: str
    port: int
    authority: bytes

    def __str__(self) -> str:
        """`host:port`, with brackets around IPv6."""
        return self.authority.decode()


def address_of(host: str, port: int) -> Address:
    """The address of an IP (v6 without brackets) and a port."""
    bracketed = f"[{host}]" if ":" in host else host
    return Address(host, port, f"{bracketed}:{port}".encode())
