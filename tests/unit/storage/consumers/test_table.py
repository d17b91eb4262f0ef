"""The effects of consumer frames, alone and combined."""

from __future__ import annotations

import msgspec
import pytest

from storage.format import control
from storage.state.consumers import section
from storage.state.consumers.consumer import Consumer
from storage.state.consumers.table import ConsumerTable
from storage.state.consumers.values import ConsumerConfig
from tests.unit.storage.consumers.consumed import STRICT, every


def put(id: int, name: str = "c", seq: int | None = 0, config: ConsumerConfig | None = None) -> control.Consumer:
    config = config or ConsumerConfig()
    return control.Consumer(consumer_id=id, name=name, event="put", config=config.to_map(), seq=seq)


def at(id: int, seq: int, name: str = "c") -> control.Consumer:
    return control.Consumer(consumer_id=id, name=name, event="cursor", seq=seq)


def gone(id: int, name: str = "c") -> control.Consumer:
    return control.Consumer(consumer_id=id, name=name, event="delete")


def table(*frames: control.Consumer) -> ConsumerTable:
    made = ConsumerTable()
    for frame in frames:
        made.apply(frame)
    return made


def seen(found: ConsumerTable) -> dict[str, tuple[int, int]]:
    return {name: (each.consumer_id, each.durable_seq) for name, each in found.by_name.items()}


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([put(3, seq=5)], {"c": (3, 5)}),
        ([put(3), at(3, 8), at(3, 4)], {"c": (3, 4)}),
        ([put(3), put(3, seq=None, config=STRICT), at(3, 1)], {"c": (3, 1)}),
        ([put(3), gone(3)], {}),
        ([put(3), gone(3), at(3, 5)], {}),
        ([put(3), gone(3), put(4, seq=2), at(3, 9)], {"c": (4, 2)}),
        ([put(3, seq=None)], {}),
        ([at(3, 9)], {}),
        ([gone(3)], {}),
        ([put(3), gone(4)], {"c": (3, 0)}),
        ([put(3), put(4, seq=6)], {"c": (4, 6)}),
        ([put(4), put(3, seq=6)], {"c": (4, 0)}),
    ],
)
def test_a_sequence_of_frames_gives_the_expected_table(
    frames: list[control.Consumer], expected: dict[str, tuple[int, int]]
) -> None:
    assert seen(table(*frames)) == expected


def test_a_put_of_an_existing_consumer_replaces_its_config() -> None:
    found = table(put(3), at(3, 8), put(3, seq=None, config=STRICT)).by_name["c"]
    assert (found.config, found.durable_seq) == (STRICT, 8)


def test_apply_returns_the_change_in_the_number_of_consumers() -> None:
    found = ConsumerTable()
    assert [found.apply(each) for each in (put(3), put(4, "d"), at(3, 5), gone(9), gone(3), gone(3))] == [
        1, 1, 0, 0, -1, 0,
    ]  # fmt: skip
    assert len(found) == 1


def test_names_are_listed_in_byte_order() -> None:
    found = table(*(put(number, name) for number, name in enumerate(["b", "a-2", "a-1", "B", "a"], 1)))
    assert [each.name for each in found.named()] == ["B", "a", "a-1", "a-2", "b"]
    assert [each.name for each in found.named("a", "a")] == ["a-1", "a-2"]
    assert [each.name for each in found.named("a-", "")] == ["a-1", "a-2"]


@pytest.mark.parametrize(
    ("frames", "lowest"),
    [
        ([], None),
        ([put(3, seq=5)], 5),
        ([put(3, seq=5), put(4, "d", seq=7)], 5),
        ([put(3, seq=5), put(4, "d", seq=7), at(3, 9)], 7),
        ([put(3, seq=5), put(4, "d", seq=7), at(3, 9), at(4, 3, "d")], 3),
        ([put(3, seq=5), put(4, "d", seq=7), gone(3)], 7),
        ([put(3, seq=5), gone(3)], None),
    ],
)
def test_the_lowest_durable_cursor_is_known_after_each_frame(
    frames: list[control.Consumer], lowest: int | None
) -> None:
    found = ConsumerTable()
    for frame in frames:
        found.apply(frame)
        expected = min((each.durable_seq for each in found.by_name.values()), default=None)
        assert found.lowest_durable() == expected
    assert found.lowest_durable() == lowest


def test_a_section_holds_only_state_from_frames() -> None:
    before = table(put(9, "z", seq=1, config=every(3)), put(3, seq=2))
    before.by_name["c"].deliver(50, 48)
    sections = section.capture(before)
    assert [each.consumer_id for each in sections] == [3, 9]
    after = ConsumerTable()
    section.restore(after, msgspec.msgpack.decode(msgspec.msgpack.encode(sections), type=list[section.ConsumerSection]))
    assert seen(after) == {"c": (3, 2), "z": (9, 1)}
    assert after.by_name["z"].config == every(3)
    assert isinstance(after.by_name["c"], Consumer)
    assert after.by_name["c"].cursor_seq == 2
