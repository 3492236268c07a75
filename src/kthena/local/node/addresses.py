"""Which loopback address each pod has.

A node owns one /16 of 127.0.0.0/8 and gives its pods addresses in order, so that an address is
reused as late as possible: clients that still know the old pod must not find a new one there.
Allocation is pure; that the subnet is no other node's is a lock that the node holds.
"""

from collections.abc import Hashable, Iterable
from typing import Final

SUBNETS: Final = range(2, 255)
"""Second octets that a node may own: 0 has the machine's own 127.0.0.1 and 127.0.0.53, 1 Debian's
127.0.1.1."""
_LAST: Final = 65534
"""The last usable host part; .0.0 and .255.255 are left out, .0.1 is the node's own."""


class AddressesExhausted(RuntimeError):  # noqa: N818 - a state, named as the standard library names ENOSPC
    """Every address of the subnet is in use."""


class AddressPool:
    """The addresses of one node.

    Mutable state: the owner of each address in use, and the host part that was given last.
    """

    def __init__(self, subnet: int) -> None:
        """A pool in 127.`subnet`.0.0/16."""
        if subnet not in SUBNETS:
            raise ValueError(f"subnet 127.{subnet}.0.0/16 is not between 127.2 and 127.254")
        self._subnet = subnet
        self._owners: dict[str, Hashable] = {}
        self._addresses: dict[Hashable, str] = {}
        self._last = 1

    @property
    def node_address(self) -> str:
        """The node's own address, never given to a pod."""
        return f"127.{self._subnet}.0.1"

    def address_of(self, owner: Hashable) -> str:
        """The owner's address; its own for as long as it is not released.

        Raises:
            AddressesExhausted: no address is free.
        """
        held = self._addresses.get(owner)
        if held is not None:
            return held
        for _ in range(_LAST - 1):
            self._last = self._last + 1 if self._last < _LAST else 2
            address = f"127.{self._subnet}.{self._last >> 8}.{self._last & 255}"
            if address not in self._owners:
                self._hold(owner, address)
                return address
        raise AddressesExhausted(f"all addresses of 127.{self._subnet}.0.0/16 are in use")

    def reserve(self, owner: Hashable, address: str) -> bool:
        """Give the owner this address (the one its pod had in an earlier life of the node).

        False when it is not of this pool or in use; the owner then gets another.
        """
        if owner in self._addresses or address in self._owners or not self._contains(address):
            return False
        self._hold(owner, address)
        return True

    def release(self, owner: Hashable) -> None:
        """Take the owner's address back; nothing happens when it has none."""
        address = self._addresses.pop(owner, None)
        if address is not None:
            del self._owners[address]

    def _hold(self, owner: Hashable, address: str) -> None:
        self._owners[address] = owner
        self._addresses[owner] = address

    def _contains(self, address: str) -> bool:
        parts = address.split(".")
        if len(parts) != 4 or not all(part.isdecimal() for part in parts):
            return False
        host = int(parts[2]) * 256 + int(parts[3])
        canonical = f"127.{self._subnet}.{host >> 8}.{host & 255}"
        return address == canonical and 2 <= host <= _LAST


def subnet_order(preferred: int | None) -> Iterable[int]:
    """The subnets to try, the preferred one first."""
    if preferred is not None and preferred in SUBNETS:
        yield preferred
    yield from (subnet for subnet in SUBNETS if subnet != preferred)
