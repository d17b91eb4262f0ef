"""`owners.json`: what one process of a node writes, the others read."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.cluster import (
    Address,
    ClusterMap,
    NodeEntry,
    NodeState,
    Owner,
    OwnersFile,
    Standing,
    read_standing,
    write_owners,
    write_standing,
)


def owner(node: str, generation: int = 1) -> Owner:
    return Owner(
        node=node,
        generation=generation,
        cluster=Address("10.0.0.1", 4200),
        http=Address("one.example", 4100),
        kafka=Address("one.example", 9092),
    )


def known(*cells: Owner | None) -> ClusterMap:
    one = NodeEntry(node="one", state=NodeState.ALIVE, cluster=Address("10.0.0.1", 4200), seen_at_ms=1_700_000_000_000)
    two = NodeEntry(node="two", state=NodeState.SILENT, cluster=Address("::1", 4200), http=Address("::1", 80))
    return ClusterMap(me="one", cells=cells, nodes=(one, two))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    written = known(owner("one"), None, owner("two", 7))
    write_owners(tmp_path, written)
    assert OwnersFile(tmp_path).read() == written


def test_nothing_is_known_before_the_first_write(tmp_path: Path) -> None:
    assert OwnersFile(tmp_path).read() is None


def test_each_replacement_is_seen_even_if_it_has_the_same_size(tmp_path: Path) -> None:
    file = OwnersFile(tmp_path)
    for generation in range(1, 9):
        write_owners(tmp_path, known(owner("one", generation)))
        read = file.read()
        assert read is not None
        assert read.cells == (owner("one", generation),)


def test_each_of_many_quick_replacements_is_seen(tmp_path: Path) -> None:
    file = OwnersFile(tmp_path)
    for generation in range(1, 50):
        write_owners(tmp_path, known(owner("one", generation + 100)))
        write_owners(tmp_path, known(owner("one", generation + 200)))
        read = file.read()
        assert read is not None
        assert read.cells == (owner("one", generation + 200),)


def test_a_file_that_was_not_replaced_is_decoded_once(tmp_path: Path) -> None:
    file = OwnersFile(tmp_path)
    write_owners(tmp_path, known(owner("one")))
    assert file.read() is file.read()


@pytest.mark.parametrize("damage", [b"", b"{", b'{"me": 1, "cells": []}', b'{"me": "one"}'])
def test_a_file_that_cannot_be_read_changes_nothing(tmp_path: Path, damage: bytes) -> None:
    file = OwnersFile(tmp_path)
    write_owners(tmp_path, known(owner("one")))
    before = file.read()
    (tmp_path / "owners.json").write_bytes(damage)
    assert file.read() == before
    (tmp_path / "owners.json").unlink()
    assert file.read() == before
    write_owners(tmp_path, known(owner("two")))
    assert file.read() == known(owner("two"))


def test_the_file_that_is_not_complete_has_another_name(tmp_path: Path) -> None:
    write_owners(tmp_path, known(None))
    assert [each.name for each in tmp_path.iterdir()] == ["owners.json"]


def test_a_cell_is_local_if_this_node_owns_it() -> None:
    found = known(owner("one"), None, owner("two"))
    assert [found.is_local(cell) for cell in range(-1, 4)] == [False, True, False, False, False]
    assert found.owner(3) is None
    assert found.owner(-1) is None


@pytest.mark.parametrize(
    ("host", "shown"), [("a.example", "a.example:1"), ("::1", "[::1]:1"), ("10.0.0.1", "10.0.0.1:1")]
)
def test_an_address_is_shown_as_urls_have_it(host: str, shown: str) -> None:
    assert str(Address(host, 1)) == shown


def test_a_node_reads_what_its_process_wrote_and_not_what_one_before_it_wrote(tmp_path: Path) -> None:
    assert read_standing(tmp_path, 3, "aa") is None
    for progress in (0.0, 0.5):
        written = Standing(nonce="aa", state="recovering", since_ms=1_700_000_000_000, progress=progress)
        write_standing(tmp_path, 3, written)
        assert read_standing(tmp_path, 3, "aa") == written
    assert read_standing(tmp_path, 3, "bb") is None
    assert read_standing(tmp_path, 4, "aa") is None
    (tmp_path / "cell-03.standing").write_text("{")
    assert read_standing(tmp_path, 3, "aa") is None
