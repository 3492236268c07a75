import ipaddress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.local.node.addresses import SUBNETS, AddressesExhausted, AddressPool, subnet_order
from kthena.local.node.claims import ClaimError, claim_directory, claim_subnet


@given(st.lists(st.tuples(st.booleans(), st.integers(min_value=0, max_value=9)), max_size=80))
def test_no_address_is_shared_and_each_stays(steps: list[tuple[bool, int]]) -> None:
    pool = AddressPool(7)
    held: dict[int, str] = {}
    last: str | None = None
    for take, owner in steps:
        if take:
            address = pool.address_of(owner)
            assert held.get(owner, address) == address
            if owner not in held:
                assert address not in held.values()
                assert address != last, "given again although others are free"
            held[owner] = address
        else:
            pool.release(owner)
            last = held.pop(owner, last)
    assert len(set(held.values())) == len(held)
    for address in held.values():
        assert ipaddress.ip_address(address) in ipaddress.ip_network("127.7.0.0/16")
        assert address not in {"127.7.0.0", pool.node_address, "127.7.255.255"}


def test_addresses_run_out_and_come_back() -> None:
    pool = AddressPool(9)
    addresses = {pool.address_of(number) for number in range(65533)}

    assert len(addresses) == 65533
    assert not addresses & {"127.9.0.0", "127.9.0.1", "127.9.255.255"}
    with pytest.raises(AddressesExhausted, match=r"127\.9\.0\.0/16"):
        pool.address_of("one more")
    pool.release(5)
    assert pool.address_of("one more") in addresses


@pytest.mark.parametrize(
    ("address", "reserved"),
    [
        ("127.7.1.2", True),
        ("127.7.0.1", False),
        ("127.7.255.255", False),
        ("127.8.1.2", False),
        ("127.7.01.2", False),
        ("10.0.0.9", False),
        ("", False),
        ("127.7.1", False),
        ("127.7.300.2", False),
    ],
)
def test_only_an_address_of_the_pool_can_be_kept(address: str, reserved: bool) -> None:
    pool = AddressPool(7)

    assert pool.reserve("pod", address) is reserved
    if reserved:
        assert pool.address_of("pod") == address
        assert not pool.reserve("other", address)
        assert pool.address_of("other") != address


def test_reserved_subnets_are_never_owned() -> None:
    assert {0, 1, 255}.isdisjoint(SUBNETS)
    assert next(iter(subnet_order(9))) == 9
    assert sorted(subnet_order(9)) == list(SUBNETS)
    for subnet in (0, 1, 255):
        with pytest.raises(ValueError, match=r"between 127\.2 and 127\.254"):
            AddressPool(subnet)


def test_a_directory_belongs_to_one_node(tmp_path: Path) -> None:
    used = pytest.raises(ClaimError, match="in use by another")
    with claim_directory(tmp_path / "new"), used, claim_directory(tmp_path / "new"):
        pass
    with claim_directory(tmp_path / "new"):
        pass


def test_a_subnet_belongs_to_one_node_and_is_remembered(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    with claim_subnet(tmp_path / "a", None) as first, claim_subnet(tmp_path / "b", None) as second:
        assert first != second
        used = pytest.raises(ClaimError, match=rf"127\.{first}\.0\.0/16")
        with used, claim_subnet(tmp_path / "b", first):
            pass
    with claim_subnet(tmp_path / "b", None) as again:
        assert again == second
