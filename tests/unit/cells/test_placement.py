"""Home cells of names, and the ids of cells."""

from __future__ import annotations

from collections import Counter

from broker.cells import home_cell
from storage.records import CELL_SHIFT, MAX_CELLS, cell_of, first_id


def test_a_name_always_has_the_same_home_cell() -> None:
    # Fixed for ever: after an upgrade, topics are found by it.
    assert [home_cell(name, 8) for name in ("orders", "mails", "mails-dead", "ä")] == [3, 0, 3, 4]


def test_names_spread_over_all_cells() -> None:
    homes = Counter(home_cell(f"topic-{number}", 8) for number in range(8000))
    assert set(homes) == set(range(8))
    assert max(homes.values()) < 1200


def test_ids_encode_their_cell_and_stay_exact_in_json() -> None:
    assert first_id(0) == 1
    assert cell_of(first_id(5)) == 5
    last = first_id(MAX_CELLS - 1) + (1 << CELL_SHIFT) - 2
    assert cell_of(last) == MAX_CELLS - 1
    assert last < 1 << 53
