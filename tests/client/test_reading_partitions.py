"""Iterating over several partitions, read and pushed, without a broker: nothing is skipped, whatever fails."""

from __future__ import annotations

import base64
import json
from collections.abc import Generator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from topics_client.calls import ReadOptions
from topics_client.errors import (
    ConnectionFailed,
    ConsumerNotFound,
    EpochConflict,
    InvalidRequest,
    NotFound,
    Throttled,
    TopicsError,
)
from topics_client.iteration import CommitMode, Reading, Step
from topics_client.listening import Listen, Stream
from topics_client.values import Record, Tombstone
from topics_client.wire import Call, Reply


class Model:
    """A topic with partitions and one consumer, in memory. A reader that waits gets a new record, in the partition that
    `grows` names.

    `fails`: what happens at the next step. `takes_streams` False: a proxy that blocks streams.
    """

    def __init__(self, counts: list[int]) -> None:
        self.heads = counts
        self.cursors: dict[int, int] = {}
        self.epoch = 1
        self.fails: list[str] = []
        self.grows = 0
        self.takes_streams = True
        self.session: list[int] | None = None
        self.stream: dict[int, int] | None = None
        self.is_deleted_said = False
        self.calls: list[str] = []
        self.now_s = 0.0

    def run(self, steps: Generator[Step, Any, Any]) -> Any:
        try:
            step = next(steps)
            for _ in range(1000):
                try:
                    value = self._take(step)
                except TopicsError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(value)
            raise AssertionError("it goes round and round")
        except StopIteration as done:
            return done.value

    def create_again(self, counts: list[int]) -> None:
        self.heads, self.cursors, self.epoch = counts, {}, self.epoch + 1
        self.is_deleted_said = self.stream is not None

    def _take(self, step: Step) -> Any:
        trouble = self.fails.pop(0) if self.fails else ""
        self.now_s += 0.6
        if trouble == "restart":
            self.session = self.stream = None
        if isinstance(step, Listen):
            return self._open(step)
        if step is Stream.CLOSE:
            self.stream = None
            return None
        if step is Stream.PIECE:
            return self._piece(trouble)
        assert isinstance(step, Call)
        if trouble == "not sent":
            raise ConnectionFailed("away")
        answer = self._answer(step)
        if trouble == "lost":
            raise ConnectionFailed("broken", outcome="unknown")
        return step.parse(Reply(status=200, headers={}, body=msgspec.json.encode(answer)))

    def _open(self, step: Listen) -> None:
        self.calls.append("listen")
        cursor = step.request.headers["Last-Event-ID"]
        found = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        self.stream = {}
        for name, position in found.items():
            number = int(name.partition("#")[2] or 0)
            self.stream[number] = position["seq"]
            if position["epoch"] != self.epoch:
                self.is_deleted_said = True

    def _piece(self, trouble: str) -> bytes | None:
        if not self.takes_streams or trouble in ("not sent", "lost", "restart"):
            self.stream = None
            raise ConnectionFailed("broken")
        if trouble == "ended" or self.stream is None:
            self.stream = None
            return None
        if self.session is None:
            self.stream = None
            raise NotFound("no such session", status=404)
        if self.is_deleted_said:
            self.is_deleted_said = False
            return b'event: topic-deleted\nid: x\ndata: {"topic":"t","head_seq":0,"reason":"deleted"}\n\n'
        if all(self.heads[number] <= seq for number, seq in self.stream.items()):
            self.heads[self.grows % len(self.heads)] += 1
        text = b""
        for number, seq in self.stream.items():
            to = min(self.heads[number], seq + 2)
            if to > seq:
                data = {"topic": "t", "records": records(seq, to), "from_seq": seq, "to_seq": to, "head_seq": to}
                text += b"event: record\nid: x\ndata: %b\n\n" % msgspec.json.encode(
                    {**data, **({"partition": number} if number else {})}
                )
                self.stream[number] = to
        return text + b": hb 1\n\n"

    def _answer(self, call: Call[Any]) -> dict[str, Any]:
        target = urlsplit(call.request.target)
        number = int(parse_qs(target.query).get("partition", ["0"])[0])
        body = json.loads(call.request.body or b"{}")
        what = (call.request.method, target.path.removeprefix("/v0/topics/t"))
        self.calls.append(what[1])
        if what == ("POST", "/v0/watch"):
            if not self.takes_streams:
                raise Throttled("too many", status=429)
            self.session = body["topics"]["t"].get("partitions", [0])
            return {"stream_url": "/v0/watch/w", "topics": {}}
        if what == ("GET", ""):
            return self._state()
        if number >= len(self.heads):
            raise InvalidRequest("no such partition", detail={"field": "partition"}, status=400)
        found = {"topic": "t", "consumer": "c", **({"partition": number} if number else {})}
        if what == ("POST", "/diff"):
            return {**self._diff(body, number), **found}
        if what == ("PUT", "/consumers/c"):
            return {**found, "cursor_seq": self.cursors.setdefault(number, 0), "created": True}
        if what == ("POST", "/consumers/c/commit") and body["epoch"] != self.epoch:
            raise EpochConflict("created again")
        if number not in self.cursors:
            raise ConsumerNotFound("no such consumer")
        if what == ("POST", "/consumers/c/commit"):
            self.cursors[number] = max(self.cursors[number], body["seq"])
        return {**found, "cursor_seq": self.cursors[number]}

    def _state(self) -> dict[str, Any]:
        each = [
            {
                "partition": number, "epoch": self.epoch, "head_seq": head, "earliest_seq": 1, "next_seq": head + 1,
                "count": head, "bytes": head,
            }
            for number, head in enumerate(self.heads)
        ]  # fmt: skip
        return {**each[0], "topic": "t", "type": "log", "config": {}, "partitions": each if len(each) > 1 else []}

    def _diff(self, body: dict[str, Any], number: int) -> dict[str, Any]:
        seq = body["from_seq"]
        if body["wait_ms"] and all(head <= seq for head in self.heads):
            self.heads[self.grows % len(self.heads)] += 1
        head = self.heads[number]
        to = min(head, seq + body["limit"])
        found: dict[str, Any] = {"head_seq": head, "earliest_seq": 1, "tombstone": None}
        if body["epoch"] != self.epoch:
            gap = {"gap_from": seq + 1, "gap_to": seq, "reason": "recreated", "missed_estimate": 0}
            return {**found, "records": [], "next_from_seq": 0, "caught_up": False, "tombstone": {
                **gap, "head_seq": head, "earliest_seq": 1}}  # fmt: skip
        return {**found, "records": records(seq, to), "next_from_seq": max(seq, to), "caught_up": to == head}


def records(after: int, to: int) -> list[dict[str, Any]]:
    return [{"$seq": seq, "$ts": 1, "data": seq} for seq in range(after + 1, to + 1)]


def reading(model: Model, mode: CommitMode = "batch", options: ReadOptions | None = None) -> Reading:
    return Reading("t", "c", mode, "earliest", {"limit": 2, **(options or {})}, lambda: model.now_s)


def take(model: Model, reader: Reading, count: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for _ in range(count):
        item = model.run(reader.next_item())
        assert isinstance(item, Record)
        found.append((item.partition, item.seq))
    return found


def test_partitions_take_turns_and_then_records_are_pushed() -> None:
    model = Model([3, 2, 0])
    reader = reading(model)
    assert take(model, reader, 5) == [(0, 1), (0, 2), (1, 1), (1, 2), (0, 3)]
    assert "listen" not in model.calls
    model.calls.clear()
    model.grows = 2
    assert take(model, reader, 3) == [(2, 1), (2, 2), (2, 3)]
    assert model.session == [0, 1, 2]
    model.run(reader.leave())
    assert model.calls.count("listen") == 1
    assert model.stream is None
    assert model.cursors == {0: 3, 1: 2, 2: 2}
    assert reader.committed == model.cursors


def test_only_handled_records_are_committed_in_each_partition() -> None:
    model = Model([2, 2])
    reader = reading(model, "manual")
    assert take(model, reader, 3) == [(0, 1), (0, 2), (1, 1)]
    model.run(reader.commit(Record(seq=1, ts=1, partition=0)))
    assert model.cursors == {0: 1, 1: 0}
    model.run(reader.commit(None))
    assert model.cursors == {0: 2, 1: 1}


def test_without_streams_partitions_are_asked_in_turn() -> None:
    unlike_streams: list[ReadOptions] = [{"wait_ms": 5}, {"tag": "a"}]
    for options in unlike_streams:
        model = Model([1, 1])
        reader = reading(model, options=options)
        assert take(model, reader, 2) == [(0, 1), (1, 1)]
        model.grows = 1
        assert take(model, reader, 2) == [(1, 2), (1, 3)]
        assert {"listen", "/v0/watch"}.isdisjoint(model.calls)


def test_where_no_stream_comes_through_reads_are_held() -> None:
    model = Model([1, 1])
    model.takes_streams = False
    reader = reading(model)
    assert take(model, reader, 8)[:2] == [(0, 1), (1, 1)]
    assert model.calls.count("/v0/watch") == 3
    assert "listen" not in model.calls


def test_a_reader_inside_a_deadline_waits_for_no_stream() -> None:
    model = Model([1])
    reader = reading(model)
    take(model, reader, 2)
    assert model.stream is not None
    item = model.run(reader.next_item(may_listen=False))
    assert (item.seq, model.stream) == (3, None)


def test_a_partition_that_is_added_is_read_from_its_beginning() -> None:
    model = Model([1])
    reader = reading(model)
    take(model, reader, 3)
    model.heads.append(2)
    model.now_s += 60
    found = take(model, reader, 6)
    assert [seq for partition, seq in found if partition == 1] == [1, 2]
    assert model.session == [0, 1]


def test_a_topic_that_is_made_again_with_fewer_partitions() -> None:
    model = Model([1, 1, 1])
    reader = reading(model, "record")
    take(model, reader, 4)
    model.create_again([2, 3])
    found: list[tuple[int, int]] = []
    told: set[int] = set()
    while len(found) < 5:
        item = model.run(reader.next_item())
        if isinstance(item, Tombstone):
            assert item.reason == "recreated"
            told.add(item.partition)
        else:
            found.append((item.partition, item.seq))
    assert sorted(found) == [(0, 1), (0, 2), (1, 1), (1, 2), (1, 3)]
    assert {0, 1} <= told
    take(model, reader, 2)
    assert {*model.cursors} == {0, 1}


@given(
    st.sampled_from(["record", "batch", "manual"]),
    st.lists(st.integers(0, 5), min_size=1, max_size=3),
    st.booleans(),
    st.lists(
        st.one_of(
            st.sampled_from(
                ["next", "next", "commit", "kill", "leave", "deadline", "not sent", "lost", "ended", "restart"]
            ),
            st.integers(0, 2),
        ),
        max_size=60,
    ),
)
def test_no_record_is_skipped_in_any_partition(
    mode: CommitMode, counts: list[int], streams: bool, happenings: list[str | int]
) -> None:
    """In each partition records come in order, and after a kill after the cursor, which is never beyond what was
    handled."""
    model = Model([*counts])
    model.takes_streams = streams
    reader = reading(model, mode)
    given_seqs = dict.fromkeys(range(len(counts)), 0)
    handled = dict(given_seqs)
    for happening in happenings:
        match happening:
            case int():
                model.grows = happening
                continue
            case "not sent" | "lost" | "ended" | "restart":
                model.fails = [happening]
                continue
            case "kill":
                reader = reading(model, mode)
                model.stream = None
                given_seqs = {number: model.cursors.get(number, 0) for number in given_seqs}
                continue
            case "commit":
                handled = {number: max(seq, given_seqs[number]) for number, seq in handled.items()}
                steps = reader.commit(None)
            case "leave":
                steps = reader.leave()
            case _:
                handled = {number: max(seq, given_seqs[number]) for number, seq in handled.items()}
                steps = reader.next_item(may_listen=happening == "next")
        try:
            item = model.run(steps)
        except ConnectionFailed:
            pass
        else:
            if happening in ("next", "deadline"):
                assert isinstance(item, Record)
                assert item.seq == given_seqs[item.partition] + 1
                given_seqs[item.partition] += 1
        for number, seq in model.cursors.items():
            assert seq <= handled[number]
        for number, seq in reader.committed.items():
            assert seq <= model.cursors.get(number, 0)
