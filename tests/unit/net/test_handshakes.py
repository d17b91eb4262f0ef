"""Handshakes take turns by address. When there are many, the newest go first."""

from __future__ import annotations

from typing import Any

import pytest

from broker.net.handshakes import CROWD, ByAddress, address_of


class Waiting:
    """A newcomer that only waits."""

    def __init__(self, address: bytes, number: int) -> None:
        self.address = address
        self.number = number

    def begin(self) -> None: ...

    def give_up(self) -> None: ...

    def __repr__(self) -> str:
        return f"{self.address.decode()}{self.number}"


def added(turns: ByAddress, address: bytes, count: int) -> list[Waiting]:
    made = [Waiting(address, number) for number in range(count)]
    for each in made:
        turns.add(each)
    return made


def taken(turns: ByAddress, count: int) -> list[str]:
    return [repr(turns.take()) for _ in range(count)]


def test_addresses_take_turns_and_each_address_keeps_its_order() -> None:
    turns = ByAddress()
    added(turns, b"a", 3)
    added(turns, b"b", 2)
    added(turns, b"c", 1)
    assert taken(turns, len(turns)) == ["a0", "b0", "c0", "a1", "b1", "a2"]


def test_in_a_crowd_the_newest_of_an_address_goes_first() -> None:
    turns = ByAddress()
    added(turns, b"a", CROWD + 2)
    assert taken(turns, 2) == [f"a{CROWD + 1}", f"a{CROWD}"]
    assert taken(turns, 2) == ["a0", "a1"]  # there are not many any more


def test_in_a_crowd_a_new_address_goes_first() -> None:
    turns = ByAddress()
    added(turns, b"a", CROWD)
    added(turns, b"b", CROWD)
    added(turns, b"c", 1)
    assert taken(turns, 1) == ["c0"]
    assert {each[:1] for each in taken(turns, 2)} == {"a", "b"}


def test_take_oldest_returns_the_earliest_arrival_of_all_addresses() -> None:
    turns = ByAddress()
    added(turns, b"a", 1)
    added(turns, b"b", 2)
    assert [repr(turns.take_oldest()) for _ in range(2)] == ["a0", "b0"]
    assert taken(turns, 1) == ["b1"]
    assert len(turns) == 0


def test_a_discarded_handshake_has_no_turn() -> None:
    turns = ByAddress()
    first, second = added(turns, b"a", 2)
    added(turns, b"b", 1)
    turns.discard(first)
    turns.discard(first)
    assert taken(turns, 1) == ["a1"]
    turns.discard(second)
    assert taken(turns, len(turns)) == ["b0"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("10.0.0.1", 1), ("10.0.0.1", 2), True),
        (("10.0.0.1", 1), ("10.0.0.2", 1), False),
        (("10.0.0.1", 1), ("::ffff:10.0.0.1", 1, 0, 0), True),
        (("::ffff:10.0.0.2", 1, 0, 0), ("::ffff:10.0.0.1", 1, 0, 0), False),
        (("2001:db8::1", 1, 0, 0), ("2001:db8::ffff:0:0:1", 1, 0, 0), True),
        (("2001:db8::1", 1, 0, 0), ("2001:db8:0:1::1", 1, 0, 0), False),
        (("fe80::1%eth0", 1, 0, 2), ("fe80::2%eth1", 1, 0, 3), True),
        ("", "", True),
    ],
)
def test_an_ipv6_network_counts_as_one_address(
    one: tuple[Any, ...] | str, other: tuple[Any, ...] | str, same: bool
) -> None:
    assert (address_of(one) == address_of(other)) is same
