"""A broker refuses a batch because of some of its records. These fail, and the others are stored in order."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from topics_client.batching import Batch, Limits
from topics_client.errors import ConnectionFailed, InvalidRequest, TopicsError
from topics_client.producing import Producing
from topics_client.values import Appended


def producing() -> Producing:
    return Producing(
        linger_ms=1, batch_records=100, batch_bytes=1 << 20, buffer_bytes=1 << 20, senders=1, node=None, now=lambda: 0.0
    )


def full_batch(*numbers: int) -> Batch:
    """A batch of these numbers that takes no more."""
    limits = Limits(linger_s=1.0, batch_records=100, batch_bytes=1 << 20, buffer_bytes=1 << 20)
    batch = Batch(("t", 0), {"idempotency_key": "key"}, 0.0, limits)
    for number in numbers:
        batch.append(b'{"data":%d}' % number)
        batch.count += 1
    batch.close()
    return batch


def refusal(records: list[int], bad: set[int], named: bool) -> InvalidRequest | None:
    """The broker's answer for these records."""
    for index, record in enumerate(records):
        if record in bad:
            if named:
                return InvalidRequest("tag", detail={"field": f"records[{index}].tag"}, status=400)
            return InvalidRequest("size", code="record_too_large", detail={"field": "records"}, status=400)
    return None


@given(count=st.integers(1, 30), bad=st.sets(st.integers(0, 29)), named=st.booleans())
def test_only_invalid_records_of_a_batch_fail(count: int, bad: set[int], named: bool) -> None:
    batch = full_batch(*range(count))
    stored: list[int] = []
    keys: list[str] = []
    steps = producing().steps(batch)
    requests = 1
    call = next(steps)
    try:
        while True:
            body = json.loads(call.request.body or b"")
            keys.append(body["idempotency_key"])
            records = [record["data"] for record in body["records"]]
            refused = refusal(records, bad, named)
            if refused is not None:
                call = steps.throw(refused)
            else:
                stored += records
                first = len(stored) - len(records) + 1
                done = Appended(
                    topic="t", first_seq=first, last_seq=len(stored), head_seq=len(stored), count=len(records)
                )
                call = steps.send(done)
            requests += 1
    except StopIteration as done:
        callbacks = batch.outcome.set(done.value)
    assert callbacks == []
    failing = bad & {*range(count)}
    assert stored == [number for number in range(count) if number not in bad]
    for number in range(count):
        found = batch.outcome.of(number)
        assert isinstance(found, InvalidRequest) == (number in bad)
        if not isinstance(found, Exception):
            assert stored[found.seq - 1] == number
    assert len(set(keys)) == len(keys)
    # As many requests as it takes to find out, not one for each record.
    assert requests <= 1 + 3 * len(failing) if named else 1 + 2 * 5 * len(failing)
    assert len(batch.outcome.unasked()) == len(failing)
    for number in failing:
        batch.outcome.ask(number)
    assert batch.outcome.unasked() == []


def _ends(error: TopicsError) -> list[object]:
    batch = full_batch(1, 2)
    steps = producing().steps(batch)
    next(steps)
    try:
        steps.throw(error)
    except StopIteration as done:
        return [*done.value]
    raise AssertionError("it was sent again")


def test_a_request_that_is_invalid_as_a_whole_is_not_split() -> None:
    node = InvalidRequest("node", detail={"field": "node"}, status=400)
    assert _ends(node) == [(0, 2, node)]
    # Part of the batch may be stored.
    unknown = InvalidRequest("records", detail={"field": "records[1].tag"}, status=400)
    unknown.outcome = "unknown"
    assert _ends(unknown) == [(0, 2, unknown)]
    gone = ConnectionFailed("gone", outcome="unknown")
    assert _ends(gone) == [(0, 2, gone)]
