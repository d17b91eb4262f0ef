"""Iterating over a durable consumer, without a broker: what is committed when, and only what was handled."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics_client.errors import ConnectionFailed, ConsumerNotFound, EpochConflict, TopicsError
from topics_client.iteration import CommitMode, Item, Reading, Step
from topics_client.values import Record, Tombstone
from topics_client.wire import Call, Reply


class Model:
    """A topic with one consumer, in memory. `fails`: how many of the next calls get no answer, carried out or not."""

    def __init__(self, seqs: list[int]) -> None:
        self.seqs = seqs
        self.cursor: int | None = None
        self.epoch = 1
        self.gap: dict[str, Any] | None = None
        self.commits: list[int] = []
        self.puts: list[Any] = []
        self.fails: list[str] = []

    def run(self, steps: Generator[Step, Any, Any]) -> Any:
        try:
            call = next(steps)
            while True:
                try:
                    assert isinstance(call, Call)
                    value = self._call(call)
                except TopicsError as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(value)
        except StopIteration as done:
            return done.value

    def _call(self, call: Call[Any]) -> Any:
        trouble = self.fails.pop(0) if self.fails else ""
        if trouble == "not sent":
            raise ConnectionFailed("away")
        answer = self._answer(call)
        if trouble == "lost":
            raise ConnectionFailed("broken", outcome="unknown")
        return call.parse(Reply(status=200, headers={}, body=msgspec.json.encode(answer)))

    def _answer(self, call: Call[Any]) -> dict[str, Any]:
        head = max(self.seqs, default=0)
        seqs = {"head_seq": head, "earliest_seq": 1}
        body = json.loads(call.request.body or b"{}")
        match call.request.method, call.request.target.removeprefix("/v0/topics/t"):
            case "GET", "?complete=true":
                figures: dict[str, Any] = {
                    "type": "log",
                    "epoch": self.epoch,
                    "next_seq": head + 1,
                    "count": 0,
                    "bytes": 0,
                    "config": {},
                }
                return {"topic": "t", **seqs, **figures}
            case "GET", "/consumers/c":
                if self.cursor is None:
                    raise ConsumerNotFound("no such consumer")
            case "PUT", "/consumers/c":
                self.puts.append(body["start"])
                self.cursor = 0
                return {"topic": "t", "consumer": "c", "cursor_seq": 0, "created": True}
            case "POST", "/consumers/c/commit":
                if body["epoch"] != self.epoch:
                    raise EpochConflict("created again")
                if self.cursor is None:
                    raise ConsumerNotFound("no such consumer")
                self.cursor = max(self.cursor, body["seq"])
                self.commits.append(body["seq"])
            case "POST", "/diff":
                return self._diff(body, seqs)
            case other:
                raise AssertionError(other)
        return {"topic": "t", "consumer": "c", "cursor_seq": self.cursor}

    def _diff(self, body: dict[str, Any], seqs: dict[str, int]) -> dict[str, Any]:
        after = body["from_seq"]
        gap, self.gap = self.gap, None
        found: list[int] = []
        if body["epoch"] != self.epoch:
            gap = {"gap_from": after + 1, "gap_to": after, "reason": "recreated", "missed_estimate": 0, **seqs}
        else:
            if gap is not None:
                after = gap["gap_to"]
            found = [seq for seq in self.seqs if seq > after][: body["limit"]]
        records = [{"$seq": seq, "$ts": 1, "data": seq} for seq in found]
        end = found[-1] if found and found[-1] < seqs["head_seq"] else seqs["head_seq"]
        if len(found) == body["limit"]:
            end = found[-1]
        return {
            "topic": "t", "records": records, "next_from_seq": end, "caught_up": True, "tombstone": gap, **seqs
        }  # fmt: skip


def reading(mode: CommitMode = "batch", limit: int = 2) -> Reading:
    """Without a stream: `wait_ms` is for reads."""
    return Reading("t", "c", mode, "earliest", {"limit": limit, "wait_ms": 1}, lambda: 0.0)


def seq_of(item: Item) -> int:
    assert isinstance(item, Record)
    return item.seq


def take(model: Model, reader: Reading, count: int) -> list[int]:
    return [seq_of(model.run(reader.next_item())) for _ in range(count)]


def test_each_record_is_committed_when_the_next_is_asked_for() -> None:
    model, reader = Model([1, 2, 3]), reading("record")
    assert take(model, reader, 1) == [1]
    assert model.commits == []
    assert take(model, reader, 1) == [2]
    assert model.commits == [1]
    model.run(reader.leave())
    assert model.commits == [1]
    assert take(model, reading("record"), 1) == [2]


def test_the_records_of_an_answer_are_committed_at_once() -> None:
    model, reader = Model([1, 2, 3, 4, 5]), reading("batch")
    assert take(model, reader, 2) == [1, 2]
    assert model.commits == []
    assert take(model, reader, 2) == [3, 4]
    assert model.commits == [2]
    model.run(reader.leave())
    # 4 was returned, and may not have been handled.
    assert model.commits == [2, 3]


def test_in_manual_mode_only_explicit_commits_are_sent() -> None:
    model, reader = Model([1, 2, 3, 4, 5]), reading("manual")
    assert take(model, reader, 3) == [1, 2, 3]
    model.run(reader.leave())
    assert model.commits == []
    model.run(reader.commit(None))
    assert model.commits == [3]
    model.run(reader.commit(Record(seq=2, ts=1)))
    assert model.commits == [3]
    assert take(model, reader, 2) == [4, 5]
    model.run(reader.commit(Record(seq=4, ts=1)))
    assert (model.commits, reader.committed) == ([3, 4], {0: 4})


def test_a_commit_covers_scanned_records_that_were_skipped() -> None:
    model = Model([1, 9])
    model.seqs = [9]
    reader = reading("record", limit=5)
    assert take(model, reader, 1) == [9]
    model.run(reader.commit(None))
    assert model.commits == [9]


def test_a_tombstone_is_an_item_and_is_committed() -> None:
    model, reader = Model([5, 6]), reading("record")
    model.gap = {"gap_from": 1, "gap_to": 4, "reason": "cap", "missed_estimate": 4, "head_seq": 6, "earliest_seq": 5}
    gap = model.run(reader.next_item())
    assert isinstance(gap, Tombstone)
    assert (gap.gap_from, gap.gap_to, gap.reason) == (1, 4, "cap")
    assert take(model, reader, 1) == [5]
    assert model.commits == [4]


@pytest.mark.parametrize("mode", ["record", "batch", "manual"])
def test_reading_a_recreated_topic_recreates_the_consumer(mode: CommitMode) -> None:
    model, reader = Model([1, 2, 3, 4]), reading(mode)
    assert take(model, reader, 4) == [1, 2, 3, 4]
    model.epoch, model.seqs, model.cursor, model.puts, model.commits = 2, [1, 2, 3, 4, 5, 6], None, [], []
    gap = model.run(reader.next_item())
    assert isinstance(gap, Tombstone)
    assert gap.reason == "recreated"
    assert take(model, reader, 2) == [1, 2]
    assert model.puts == ["earliest"]
    model.run(reader.commit(None))
    assert model.cursor == 2


def test_a_deleted_consumer_is_an_error() -> None:
    model, reader = Model([1, 2]), reading("record")
    assert take(model, reader, 1) == [1]
    model.cursor = None
    with pytest.raises(ConsumerNotFound):
        model.run(reader.next_item())


@given(
    st.sampled_from(["record", "batch", "manual"]),
    st.integers(1, 4),
    st.lists(st.sampled_from(["next", "commit", "kill", "leave", "not sent", "lost"]), max_size=60),
)
def test_no_record_is_skipped_whichever_calls_fail(mode: CommitMode, limit: int, happenings: list[str]) -> None:
    """Records come in order. After a kill they continue after the cursor, which is never beyond what was handled."""
    model = Model([*range(1, 200)])
    reader = reading(mode, limit)
    given_seq = handled_seq = 0
    for happening in happenings:
        match happening:
            case "not sent" | "lost":
                model.fails = [happening]
                continue
            case "kill":
                reader = reading(mode, limit)
                given_seq = model.cursor or 0
                continue
            case "commit":
                handled_seq = max(handled_seq, given_seq)
                steps = reader.commit(None)
            case "leave":
                steps = reader.leave()
            case _:
                handled_seq = max(handled_seq, given_seq)
                steps = reader.next_item()
        try:
            item = model.run(steps)
        except ConnectionFailed:
            pass
        else:
            if happening == "next":
                assert seq_of(item) == given_seq + 1
                given_seq += 1
        assert (model.cursor or 0) <= handled_seq
        assert reader.committed.get(0, 0) <= (model.cursor or 0)
