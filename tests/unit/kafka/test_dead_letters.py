"""Jobs that Kafka clients produced, to the dead letters and back, with keys, headers, times and raw bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.kafka.mapping import columns_of, to_kafka, to_stored
from storage import Durability, Engine, ReadQuery, TopicConfig
from storage.format.binary import is_binary
from storage.format.record import payload_size
from storage.log.append import Write
from storage.queues.dead_meta import came_from, copies_of, dead_lettered, redriven
from storage.records.values import StoredBodies, StoredRecord
from storage.state.queues.moves import Move
from tests.support.shown import shown
from tests.unit.kafka.test_mapping import a_record, stored_of
from tests.unit.storage.machine import Machine
from tests.unit.storage.queues.jobs import claim_seqs, turns, with_jobs

NOW = 1_700_000_000_000
ODD: list[Any] = [
    (b"k", b' {"a" : 1}\n', [("raw", b"\xff"), ("none", None), ("text", b"x"), ("text", b"y")], NOW),
    (b"\xff\x00", b'{"a":2}', [("h", b"\x00")], NOW + 1),
    (None, b"3", [], NOW + 2),
    (b"", None, [], NOW + 3),
    (b"key", b"no json", [("$dead_letter_from", b"mine")], NOW + 4),
    (b"k" * 300, b"\x00\xff", [], -1),
]
ADDED = [("$dead_letter_from", b"q"), ("$dead_letter_deliveries", b"1"), ("$dead_letter_reason", b"no good")]


def record(stored: StoredBodies, seq: int = 4) -> StoredRecord:
    return StoredRecord(seq, 99, b"", stored.tags[0] if stored.tags else b"", stored.bodies[0])


def given_to_kafka(found: StoredRecord) -> tuple[Any, ...]:
    """Key, value, headers and time: the same one by one and by columns."""
    key, value, headers, stamp = to_kafka(found.body, found.tag, found.node, found.ts)
    _, columns = columns_of([found])
    assert [*columns.values] == [value]
    assert [*(columns.keys or [None])] == [key]
    assert [[*each] for each in columns.headers or [()]] == [[*headers]]
    assert [*columns.stamps] == [stamp]
    return key, value, [*headers], stamp


@given(a_record)
def test_a_dead_letter_is_the_record_with_its_origin_in_headers(sent: Any) -> None:
    first = record(stored_of(sent))
    dead = first._replace(body=dead_lettered(first, "q", 3, "why"))
    key, value, headers, stamp = given_to_kafka(dead)
    assert (key, value, stamp) == (*sent[:2], sent[3])
    own = len(sent[2])
    assert headers[:own] == [*map(tuple, sent[2])]
    assert dict(headers[own:])["$dead_letter_src_seq"] == b"4"
    assert came_from(dead.body) == "q"
    before, after = json.loads(shown(first.body)), json.loads(shown(dead.body))
    assert after["data"] == before["data"]
    assert after["meta"]["$dead_letter_reason"] == "why"
    assert {name: after["meta"][name] for name in before.get("meta", {})} == before.get("meta", {})
    assert redriven(dead) == first.body
    for moved, move in ((first, Move(1, 3, "why")), (dead, Move(1, 0))):
        [body] = (copies := copies_of([moved], "q", [move])).bodies
        assert body == (dead.body if move.deliveries else first.body)
        assert (copies.tags or [b""]) == [first.tag]
        assert copies.binary == bytes((is_binary(body),))
        assert [*copies.payloads] == [payload_size(body, 0, len(body))]


@given(st.sampled_from(["1", "null", '{"meta":{"ct":1}}', '{"a":"x","h":[]}', '[",\\"meta\\":"]', ' "a" ']), st.text())
def test_data_only_record_becomes_the_same_dead_letter(data: str, reason: str) -> None:
    first = StoredRecord(7, 99, b"", b"", b'{"data":%b}' % data.encode())
    [body] = (copies := copies_of([first], "q", [Move(1, 3, reason)])).bodies
    assert body == dead_lettered(first, "q", 3, reason)
    assert [*copies.payloads] == [payload_size(body, 0, len(body))]


#: Data that contains the fields which a dead letter has after its data.
IMITATED = b'{"data":1,"meta":{"$dead_letter_from":"other","$dead_letter_deliveries":"1","$dead_letter_src_seq":"9"}}'
DATAS = st.sampled_from(
    [b"1", b'"a"', b' "a" ', b"[ ]", b"{}", IMITATED, b"[%b]" % IMITATED, b'{"x":%b}' % IMITATED]
    + [json.dumps(IMITATED.decode() + more).encode() for more in ("", ",", "\\")]
)


@given(st.lists(DATAS, min_size=1, max_size=4), st.sampled_from([None, "", "why", 'a"b', "\u00fc", "\n"]))
def test_batch_conversion_equals_single_conversion_and_round_trips(datas: list[bytes], reason: str | None) -> None:
    first = [StoredRecord(seq, 99, b"", b"", b'{"data":%b}' % data) for seq, data in enumerate(datas, 1)]
    assert [came_from(each.body) for each in first] == [None] * len(first)
    dead = copies_of(first, "q", [Move(1, 3, reason)] * len(first))
    assert [*dead.bodies] == [dead_lettered(each, "q", 3, reason) for each in first]
    there = [each._replace(body=body) for each, body in zip(first, dead.bodies, strict=True)]
    assert [came_from(each.body) for each in there] == ["q"] * len(first)
    back = copies_of(there, "dead", [Move(1, 0)] * len(first))
    assert [*back.bodies] == [redriven(each) for each in there] == [each.body for each in first]
    for copies in (dead, back):
        assert [*copies.payloads] == [payload_size(body, 0, len(body)) for body in copies.bodies]
        assert not any(copies.binary or b"")


def test_a_second_dead_letter_has_only_its_latest_origin() -> None:
    first = record(stored_of(ODD[1]))
    once = first._replace(body=dead_lettered(first, "q", 3, "why"))
    twice = once._replace(body=dead_lettered(once, "dead", 1, None))
    assert came_from(twice.body) == "dead"
    assert shown(twice.body).count(b"$dead_letter_from") == 1
    assert b"$dead_letter_reason" not in twice.body
    assert redriven(twice) == first.body


async def produced(engine: Engine, records: list[Any]) -> None:
    keys, values, headers, stamps = map(list, zip(*records, strict=True))
    stored = to_stored(keys, values, headers, stamps)
    no: Any = {"key": None, "strict": False, "create": False, "config": None, "expected_seq": None}
    await Write(engine.appender, "q", stored, node="till", **no).run()


async def records_of(engine: Engine, name: str) -> list[StoredRecord]:
    return [*(await engine.read(name, ReadQuery())).records]


async def until_moved(engine: Engine) -> None:
    for _ in range(20):
        await turns()
        if not engine.queues.figures("q").dead_pending:
            return
    raise AssertionError("they are not moved")


@pytest.mark.parametrize("leases_durable", [False, True])
@pytest.mark.parametrize("when", [*range(0, 60, 7), 400])
async def test_to_the_dead_letters_and_back_over_crashes(machine: Machine, leases_durable: bool, when: int) -> None:
    engine = await with_jobs(machine, leases_durable=leases_durable, max_deliveries=1, dead_letter="dead")
    await engine.put_topic("dead", TopicConfig(durability=Durability.DISK))
    await produced(engine, ODD)
    sent, size = await records_of(engine, "q"), engine.state("q").bytes
    await claim_seqs(engine, len(ODD))
    await engine.queues.nack("q", "n", [record.seq for record in sent], reason="no good")
    await turns(when)
    engine = await machine.cut_power()
    # Without durable leases, jobs that are not moved yet become ready again.
    while left := await claim_seqs(engine, len(ODD)):
        await engine.queues.nack("q", "n", left, reason="no good")
    await until_moved(engine)
    dead = sorted(await records_of(engine, "dead"), key=lambda each: int(each.meta["$dead_letter_src_seq"]))
    assert await records_of(engine, "q") == []
    assert [(each.tag, each.node, each.binary) for each in dead] == [(each.tag, b"till", each.binary) for each in sent]
    for (key, value, headers, stamp), each in zip(ODD, dead, strict=True):
        found = given_to_kafka(each)
        assert (found[0], found[1], found[2][: len(headers)]) == (key, value, headers)
        assert found[3] == (each.ts if stamp == -1 else stamp)
        names = {name for name, _ in headers}
        assert [pair for pair in found[2][len(headers) :] if pair[0] in dict(ADDED)] == [
            pair for pair in ADDED if pair[0] not in names
        ]
    assert (await engine.queues.redrive("q")).moved == len(ODD)
    engine = await machine.cut_power()
    await until_moved(engine)
    back = await records_of(engine, "q")
    assert sorted((each.node, each.tag, each.body) for each in back) == sorted(
        (each.node, each.tag, each.body) for each in sent
    )
    assert await records_of(engine, "dead") == []
    assert engine.state("q").bytes == size
