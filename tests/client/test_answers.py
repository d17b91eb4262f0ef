"""How answers become values and errors."""

from __future__ import annotations

import email.utils
import time
from typing import Any

import pytest

from tests.client.fake_broker import error
from topics_client import calls, errors
from topics_client.answers import refusal, result_of
from topics_client.wire import NoReply, Reply


def reply(status: int, code: str, **particulars: Any) -> Reply:
    response = error(status, code, "That is how it is.", **particulars)
    return Reply(status=status, headers=response.headers, body=response.content)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid_request", errors.InvalidRequest),
        (400, "batch_too_large", errors.InvalidRequest),
        (401, "unauthorized", errors.Unauthorized),
        (403, "forbidden", errors.Forbidden),
        (404, "topic_not_found", errors.TopicNotFound),
        (404, "not_found", errors.NotFound),
        (405, "method_not_allowed", errors.InvalidRequest),
        (409, "topic_exists_incompatible", errors.Conflict),
        (409, "seq_conflict", errors.SeqConflict),
        (409, "idempotency_conflict", errors.IdempotencyConflict),
        (412, "precondition_failed", errors.Conflict),
        (413, "payload_too_large", errors.InvalidRequest),
        (422, "topic_full", errors.TopicFull),
        (429, "throttled", errors.Throttled),
        (500, "internal", errors.BrokerFault),
        (503, "not_ready", errors.NotReady),
        (503, "shutting_down", errors.NotReady),
        (503, "wal_saturated", errors.Unavailable),
        (507, "storage_full", errors.StorageFull),
        (418, "a_code_of_the_future", errors.InvalidRequest),
        (599, "a_code_of_the_future", errors.BrokerFault),
    ],
)
def test_each_refusal_code_has_an_error_class(status: int, code: str, kind: type[errors.ApiError]) -> None:
    found = refusal(reply(status, code, detail={"k": 1}))
    assert type(found) is kind
    assert (found.status, found.code, found.detail, found.message) == (status, code, {"k": 1}, "That is how it is.")


def test_an_error_message_states_the_cause_and_the_remedy() -> None:
    text = str(refusal(reply(404, "topic_not_found")))
    assert text.startswith("That is how it is.")
    assert "topics list" in text


@pytest.mark.parametrize(
    ("status", "code", "outcome"),
    [
        (503, "wal_saturated", "none"),
        (503, "storage_failed", "unknown"),
        (500, "internal", "unknown"),
        (500, "segment_corrupt", "none"),
        (507, "storage_full", "none"),
    ],
)
def test_an_error_states_whether_the_request_may_have_been_done(status: int, code: str, outcome: str) -> None:
    assert refusal(reply(status, code)).outcome == outcome


@pytest.mark.parametrize(("sent", "outcome"), [(False, "none"), (True, "unknown")])
def test_without_a_reply_the_outcome_is_unknown_only_if_bytes_were_sent(sent: bool, outcome: str) -> None:
    with pytest.raises(errors.ConnectionFailed) as caught:
        result_of(calls.health(), NoReply(reason="It broke.", sent=sent))
    assert caught.value.outcome == outcome


def test_a_proxys_page_is_an_unavailable_broker() -> None:
    found = refusal(Reply(status=504, headers={}, body=b"<html>timeout</html>"))
    assert type(found) is errors.Unavailable
    assert found.outcome == "unknown"


@pytest.mark.parametrize("body", [b"<html>", b"", b"{}", b'{"error":"x"}', b"\xff"])
def test_a_refusal_by_another_server_is_an_unexpected_answer(body: bytes) -> None:
    found = refusal(Reply(status=404, headers={}, body=body))
    assert type(found) is errors.UnexpectedAnswer
    assert "Check that the URL" in str(found)


@pytest.mark.parametrize("body", [b"<html>", b"", b'{"status":1}', b'{"status":"\xff"}'])
def test_an_unreadable_success_is_an_unexpected_answer(body: bytes) -> None:
    with pytest.raises(errors.UnexpectedAnswer, match="GET /v0/health"):
        result_of(calls.health(), Reply(status=200, headers={}, body=body))


def test_retry_after_may_be_a_date() -> None:
    when = email.utils.formatdate(time.time() + 100, usegmt=True)
    found = refusal(reply(503, "shutting_down", headers={"Retry-After": when}))
    assert isinstance(found, errors.ApiError)
    assert found.retry_after_s == pytest.approx(100, abs=20)


@pytest.mark.parametrize("value", ["soon", "", "-5", "1.5"])
def test_an_unreadable_retry_after_is_ignored(value: str) -> None:
    found = refusal(reply(503, "shutting_down", headers={"Retry-After": value}))
    assert isinstance(found, errors.ApiError)
    assert found.retry_after_s is None


def test_data_and_meta_are_kept_byte_for_byte() -> None:
    data, meta = b'{"a": 1e400,"a":  123456789012345678901234567890,\n"b":1.10}', b'{"m":[ ]}'
    body = (
        b'{"topic":"t","records":[{"$seq":7,"$ts":5,"$node":"n","$tag":"x","data":%s,"meta":%s,"new":1}],'
        b'"next_from_seq":7,"head_seq":7,"earliest_seq":1,"caught_up":true,"tombstone":null,"lag":0,"performance":{}}'
    ) % (data, meta)
    (record,) = result_of(calls.read("t", 0, {}), Reply(status=200, headers={}, body=body)).records
    assert (record.seq, record.ts, record.node, record.tag) == (7, 5, "n", "x")
    assert (record.data_raw, record.meta_raw) == (data, meta)
    assert record.data == {"a": 123456789012345678901234567890, "b": 1.1}
    assert record.to_json() == b'{"$seq":7,"$ts":5,"$node":"n","$tag":"x","data":%s,"meta":%s}' % (
        data.replace(b"\n", b" "),
        meta,
    )
