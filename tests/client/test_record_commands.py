"""`topics get` and `topics records delete` against a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from topics_client import Client, NewRecord
from topics_client.commands import deleting
from topics_client.commands.terminal import ExitCode

Topics = Callable[..., Result]


def test_get_prints_the_record_of_a_seq(topics: Topics, client: Client) -> None:
    client.append("t", [NewRecord(data={"n": 1}, tag="a", node="w"), 2])
    assert topics("get", "t", "1").stdout.endswith('  #a  @w  {"n":1}\n')
    record = json.loads(topics("get", "t", "1", "--json").stdout)
    assert (record["$seq"], record["$tag"], record["$node"], record["data"]) == (1, "a", "w", {"n": 1})
    refusal = topics("get", "t", "3", "--json", status=ExitCode.REFUSED)
    assert json.loads(refusal.stderr)["error"]["detail"]["reason"] == "future"
    topics("get", "t", "0", status=ExitCode.USAGE)


def test_get_prints_a_record_of_a_partition(topics: Topics, client: Client) -> None:
    client.put_topic("t", partitions=2)
    client.append("t", ["there"], partition=1)
    assert json.loads(topics("get", "t", "1", "--partition", "1", "--json").stdout)["data"] == "there"
    topics("get", "t", "1", status=ExitCode.REFUSED)


def test_records_are_deleted_by_seq_and_tag(topics: Topics, client: Client) -> None:
    client.append("t", [NewRecord(data=n, tag=tag) for n, tag in enumerate(("a", "b", "a", "ab", "b"), 1)])
    assert topics("records", "delete", "t", "--tag", "a", "--before-seq", "3", "-y").stdout == (
        "Deleted 1 record of t; 4 records left.\n"
    )
    assert json.loads(topics("records", "delete", "t", "--tag", "a*", "--yes", "--json").stdout)["deleted"] == 2
    topics("records", "delete", "t", "--before-seq", "5", "--yes")
    assert [record.data for record in client.read("t").records] == [5]


def test_delete_without_a_condition_or_without_yes_is_refused(topics: Topics, client: Client) -> None:
    client.append("t", [1])
    assert "--before-seq" in topics("records", "delete", "t", "--yes", status=ExitCode.USAGE).stderr
    assert "--yes" in topics("records", "delete", "t", "--before-seq", "9", status=ExitCode.USAGE).stderr
    assert client.state("t").count == 1


def test_a_person_is_asked(topics: Topics, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.append("t", [1, 2])
    asked: list[str] = []

    def confirm(question: str, *, err: bool) -> bool:
        assert err
        asked.append(question)
        return len(asked) > 1

    class Terminal:
        def isatty(self) -> bool:
            return True

    class Sys:
        stdin = stderr = Terminal()

    monkeypatch.setattr(deleting, "sys", Sys)
    monkeypatch.setattr(deleting.click, "confirm", confirm)
    topics("records", "delete", "t", "--before-seq", "2", status=ExitCode.REFUSED)
    assert client.state("t").count == 2
    topics("records", "delete", "t", "--before-seq", "2")
    assert client.state("t").count == 1
    assert asked == ["Delete the records of t (seqs 1 to 2) below seq 2 permanently?"] * 2
