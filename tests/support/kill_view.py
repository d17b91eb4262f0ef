"""Everything that a broker serves of a topic, read from the beginning to the end."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.support.kill_connection import Connection

#: Fields that change with time alone.
_PASSING = ("performance", "last_read_ts", "effective_priority")


class Gap(NamedTuple):
    """An announced loss, both ends included."""

    first: int
    last: int
    reason: str


class View(NamedTuple):
    """A topic's state, records and announced losses. Two views are equal if nobody can see a difference."""

    state: dict[str, Any]
    records: list[dict[str, Any]]
    gaps: list[Gap]


async def views(connection: Connection) -> dict[str, View]:
    """All topics, by name."""
    names: list[str] = []
    path = "/v0/topics?page_size=1000"
    cursor: str | None = ""
    while cursor is not None:
        status, page = await connection.call("GET", f"{path}&cursor={cursor}" if cursor else path)
        assert status == 200, page
        names += [entry["topic"] for entry in page["topics"]]
        cursor = page.get("next_cursor")
    return {name: await view(connection, name) for name in names}


async def view(connection: Connection, topic: str) -> View:
    """One topic that exists and that nobody writes to."""
    status, state = await connection.call("GET", f"/v0/topics/{topic}")
    assert status == 200, state
    records: list[dict[str, Any]] = []
    gaps: list[Gap] = []
    cursor, caught_up = 0, False
    while not caught_up:
        body = {"from_seq": cursor, "limit": 1000, "max_batch_bytes": 8 << 20, "include_tags": True}
        status, answer = await connection.call("POST", f"/v0/topics/{topic}/diff", body)
        assert status == 200, answer
        assert answer["next_from_seq"] > cursor or answer["caught_up"], f"{topic}: stuck at {cursor}"
        lost = answer["tombstone"]
        if lost is not None:
            assert lost["gap_from"] == cursor + 1, f"{topic}: {lost} for a reader at {cursor}"
            gaps.append(Gap(lost["gap_from"], lost["gap_to"], lost["reason"]))
        records += answer["records"]
        cursor, caught_up = answer["next_from_seq"], answer["caught_up"]
    assert cursor == state["head_seq"]
    return View({name: value for name, value in state.items() if name not in _PASSING}, records, gaps)
