"""Consumers with the client and on the command line, against a real broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from storage import BlockingEngine
from tests.client.real_broker import RealBroker
from topics_client import AsyncClient, Client, ConsumerNotFound, InvalidRequest, Record, Tombstone, TopicNotFound
from topics_client.cli import app

Topics = Callable[..., Result]


@pytest.fixture
def client(client: Client) -> Client:
    client.append("t", [1, 2, 3, 4, 5])
    return client


@pytest.fixture
def topics(broker: RealBroker) -> Topics:
    """Runs `topics consumers ...`."""

    def run(*arguments: str, status: int = 0) -> Result:
        environment = {"TOPICS_URL": broker.url, "COLUMNS": "200"}
        result = CliRunner().invoke(app, ["consumers", *arguments], env=environment)
        assert result.exit_code == status, result.output
        return result

    return run


def seqs(items: Any) -> list[int]:
    return [item.seq for item in items if isinstance(item, Record)]


def test_a_consumer_reads_on(client: Client) -> None:
    made = client.consumers.put("t", "c", consistency="strictly_at_once", persist_every=5, start=1)
    assert (made.created, made.consistency, made.persist_every, made.cursor_seq) == (
        True,
        "strictly_at_once",
        5,
        1,
    )
    assert client.consumers.put("t", "c").created is False
    first = client.consumers.read("t", "c", limit=2)
    assert (seqs(first.records), first.consumer, first.cursor_seq, first.unread) == ([2, 3], "c", 3, 2)
    assert seqs(client.consumers.read("t", "c", checkpoint=False).records) == [4, 5]
    assert client.consumers.commit("t", "c", 4).cursor_seq == 4
    assert client.consumers.get("t", "c").unread == 1
    assert client.consumers.seek("t", "c", to="earliest").unread == 5
    assert client.consumers.seek("t", "c", seq=2).cursor_seq == 2
    assert client.consumers.seek("t", "c", ts=0).cursor_seq == 0
    assert client.consumers.delete("t", "c").deleted
    assert not client.consumers.delete("t", "c").deleted


def test_names_are_escaped(client: Client) -> None:
    for name in ("a%2Fb", "100%"):
        assert client.consumers.put("t", name).consumer == name
        assert client.consumers.read("t", name, limit=1).consumer == name
    assert [each.consumer for each in client.consumers.list("t")] == ["100%", "a%2Fb"]


def test_consumers_are_listed_over_pages(client: Client) -> None:
    for number in range(5):
        client.consumers.put("t", f"c{number}")
    client.consumers.put("t", "other")
    assert [each.consumer for each in client.consumers.list("t", "c", page_size=2)] == [f"c{n}" for n in range(5)]
    assert list(client.consumers.list("t", "x")) == []


def test_errors_of_consumer_calls_have_code_and_field(client: Client) -> None:
    with pytest.raises(ConsumerNotFound) as caught:
        client.consumers.get("t", "nobody")
    assert "topics consumers list" in str(caught.value)
    with pytest.raises(TopicNotFound):
        client.consumers.put("nothing", "c")
    with pytest.raises(InvalidRequest):
        client.consumers.get("t", "a/b")
    client.consumers.put("t", "c")
    with pytest.raises(InvalidRequest) as refused:
        client.consumers.commit("t", "c", 9)
    assert refused.value.detail["field"] == "seq"


def test_following_commits_processed_records(client: Client) -> None:
    client.consumers.put("t", "c")
    following = client.consumers.follow("t", "c", limit=2)
    assert seqs(islice(following, 2)) == [1, 2]
    assert client.consumers.get("t", "c").cursor_seq == 0
    assert seqs([next(following)]) == [3]
    assert client.consumers.get("t", "c").cursor_seq == 2
    following.close()
    # The broker does not know that 3 was handled.
    assert seqs(islice(client.consumers.follow("t", "c"), 3)) == [3, 4, 5]


def test_following_continues_when_more_records_come(client: Client) -> None:
    client.consumers.put("t", "c", start="head")
    following = client.consumers.follow("t", "c", wait_ms=200)
    client.append("t", ["more"])
    assert seqs([next(following)]) == [6]
    client.append("t", ["and more"])
    assert seqs([next(following)]) == [7]
    assert client.consumers.get("t", "c").cursor_seq == 6


def test_following_skips_records_of_the_same_node(client: Client) -> None:
    client.consumers.put("t", "c", start="head")
    client.append("t", ["mine"], node="me")
    client.append("t", ["mine too", "still mine"], node="me")
    client.append("t", ["yours"], node="you")
    following = client.consumers.follow("t", "c", limit=1, wait_ms=200, node="me")
    assert seqs([next(following)]) == [9]


def test_following_ends_as_in_the_embedded_engine(client: Client, tmp_path: Path) -> None:
    """With `wait_ms` it ends when no record comes. The records that it returned are committed."""
    client.append("ends", [1, 2, 3])
    client.consumers.put("ends", "c")
    assert seqs(client.consumers.follow("ends", "c", wait_ms=0, limit=2)) == [1, 2, 3]
    assert client.consumers.get("ends", "c").cursor_seq == 3
    assert seqs(client.consumers.follow("ends", "c", wait_ms=50)) == []
    with BlockingEngine.open(tmp_path) as engine:
        for number in (1, 2, 3):
            engine.append("ends", number)
        assert [record.seq for record in engine.follow("ends", "c", wait_ms=0)] == [1, 2, 3]
        assert engine.consumer_state("ends", "c").cursor_seq == 3
        assert list(engine.follow("ends", "c", wait_ms=50)) == []


def test_following_together_shares_the_records(client: Client) -> None:
    client.consumers.put("t", "c")
    one = client.consumers.follow("t", "c", shared=True, limit=2)
    other = client.consumers.follow("t", "c", shared=True, limit=2)
    assert seqs([next(one), next(other), next(one), next(other)]) == [1, 3, 2, 4]


def test_a_tombstone_precedes_the_records_after_the_gap(client: Client) -> None:
    client.consumers.put("t", "c")
    client.put_topic("t", cap_records=2)
    gap, record = islice(client.consumers.follow("t", "c"), 2)
    assert isinstance(gap, Tombstone)
    assert (gap.gap_from, gap.gap_to) == (1, 3)
    assert seqs([record]) == [4]


def test_the_asynchronous_client_has_the_same_consumer_calls(broker: RealBroker, client: Client) -> None:
    async def use() -> list[Any]:
        async with AsyncClient(broker.url) as other:
            made = await other.consumers.put("t", "c")
            read = await other.consumers.read("t", "c", limit=1)
            committed = await other.consumers.commit("t", "c", 2)
            sought = await other.consumers.seek("t", "c", seq=1)
            found = await other.consumers.get("t", "c")
            listed = [each.consumer async for each in other.consumers.list("t")]
            followed: list[int] = []
            following = other.consumers.follow("t", "c", limit=2)
            async for item in following:
                followed += seqs([item])
                if len(followed) == 4:
                    break
            await following.aclose()
            at = (await other.consumers.get("t", "c")).cursor_seq
            gone = await other.consumers.delete("t", "c")
        return [
            made.created,
            seqs(read.records),
            committed.cursor_seq,
            sought.cursor_seq,
            found.unread,
            listed,
            followed,
            at,
            gone.deleted,
        ]

    assert asyncio.run(use()) == [True, [1], 2, 1, 4, ["c"], [2, 3, 4, 5], 3, True]


def test_the_commands_print_the_changes(client: Client, topics: Topics) -> None:
    assert topics("put", "t", "c", "--from", "1").output == "Made c of t, after seq 1, with 4 unread.\n"
    assert topics("put", "t", "c", "--persist-every", "9").output == "Changed c of t, after seq 1, with 4 unread.\n"
    assert client.consumers.get("t", "c").persist_every == 9
    printed = topics("read", "t", "c", "-n", "2").stdout.splitlines()
    assert [line.split()[0] for line in printed] == ["2", "3"]
    assert topics("commit", "t", "c", "4").output == "c of t is after seq 4, with 1 unread.\n"
    assert topics("seek", "t", "c", "earliest").output == "c of t is after seq 0, with 5 unread.\n"
    assert topics("seek", "t", "c", "2").output == "c of t is after seq 2, with 3 unread.\n"
    assert topics("seek", "t", "c", "--ts", "0").output == "c of t is after seq 0, with 5 unread.\n"
    assert "persist_every" in topics("get", "t", "c").output
    assert topics("list", "t").output.splitlines()[1].split()[0] == "c"
    assert topics("delete", "t", "c").output == "Deleted c of t.\n"
    assert "no consumer named c" in topics("delete", "t", "c").output
    assert "no consumers yet" in topics("list", "t").output


def test_the_commands_speak_json(client: Client, topics: Topics) -> None:
    assert json.loads(topics("put", "t", "c", "--consistency", "strictly_at_once", "--json").stdout)["created"] is True
    assert json.loads(topics("get", "t", "c", "--json").stdout)["consistency"] == "strictly_at_once"
    (line,) = topics("list", "t", "--json").stdout.splitlines()
    assert json.loads(line)["unread"] == 5
    lines = topics("read", "t", "c", "--json", "-n", "2").stdout.splitlines()
    assert [json.loads(line)["data"] for line in lines] == [1, 2]
    assert json.loads(topics("commit", "t", "c", "3", "--json").stdout)["cursor_seq"] == 3
    assert json.loads(topics("seek", "t", "c", "head", "--json").stdout)["cursor_seq"] == 5
    assert json.loads(topics("delete", "t", "c", "--json").stdout)["deleted"] is True


def test_reading_on_the_command_line(client: Client, topics: Topics) -> None:
    client.consumers.put("t", "c")
    for _ in range(2):
        assert len(topics("read", "t", "c", "--peek").stdout.splitlines()) == 5
    client.append("t", list(range(2000)))
    assert len(topics("read", "t", "c", "-n", "1500").stdout.splitlines()) == 1500
    assert len(topics("read", "t", "c").stdout.splitlines()) == 505
    assert "nothing new" in topics("read", "t", "c").stderr
    assert "nothing new" in topics("read", "t", "c", "--wait-ms", "10").stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("seek", "t", "c"),
        ("seek", "t", "c", "head", "--ts", "1"),
        ("seek", "t", "c", "tail"),
        ("put", "t", "c", "--from", "tail"),
        ("put", "t", "c", "--consistency", "none"),
        ("put", "t", "c", "--persist-every", "0"),
        ("commit", "t", "c", "x"),
        ("read", "t", "c", "-f", "--peek"),
        ("get", "t", "a/b"),
    ],
)
def test_invalid_options_are_refused_before_any_request(topics: Topics, arguments: tuple[str, ...]) -> None:
    topics(*arguments, status=2)
