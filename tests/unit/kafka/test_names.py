"""Groups and the consumers that hold their offsets: one name for each id, and the id for each name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.kafka.names import consumer_name, group_of


@given(st.text(min_size=1, max_size=80))
def test_group_ids_round_trip_through_consumer_names(group_id: str) -> None:
    name = consumer_name(group_id)
    assert name is not None
    assert name.isascii()
    assert group_of(name) == group_id


def test_group_ids_without_a_consumer_name() -> None:
    assert consumer_name("") is None
    assert consumer_name("x" * 507) is None
    assert consumer_name("x" * 506) is not None


@pytest.mark.parametrize("name", ["till", "group:", "group:%FF", "group:a%62", "group:%2f", "group:ä"])
def test_other_consumers_belong_to_no_group(name: str) -> None:
    assert group_of(name) is None
