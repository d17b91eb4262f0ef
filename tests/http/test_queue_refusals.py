"""Refused calls on queues, one case per row."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from storage.log.validation import MAX_DELAY_MS
from storage.queues.queues import MAX_ATTEMPT_KEY_BYTES, MAX_REASON_BYTES
from tests.http.calls import JSON, refused, refused_field
from tests.http.queue_calls import queue

SETTLING = ["ack", "nack", "extend"]
CALLS = ["claim", *SETTLING]
NO_U64 = [-1, 1 << 64, 1.5, True, "1", []]
#: Every call with what it needs.
GOOD: dict[str, dict[str, Any]] = {
    "claim": {"node": "w"},
    "ack": {"node": "w", "seqs": [1]},
    "nack": {"node": "w", "seqs": [1]},
    "extend": {"node": "w", "seqs": [1], "lease_ms": 1000},
}
OTHERS = {"pause": {}, "resume": {}, "purge": {}, "redrive": {"dry_run": True}}


async def refuse(client: httpx.AsyncClient, call: str, field: str, value: Any, code: str = "invalid_request") -> None:
    """The call with one field replaced is refused, naming the field, before the topic is looked up."""
    await queue(client, 1)
    body = GOOD.get(call, {}) | {field.partition("[")[0]: value}
    for name in ("q", "absent"):
        refused_field(await client.post(f"/v0/topics/{name}/{call}", json=body), field, code)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("node", [None, "", "n" * 129, "é" * 65, 1, ["w"]])
async def test_an_invalid_node_is_refused(client: httpx.AsyncClient, call: str, node: Any) -> None:
    await refuse(client, call, "node", node)


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_without_a_node_is_refused(client: httpx.AsyncClient, call: str) -> None:
    body = {name: value for name, value in GOOD[call].items() if name != "node"}
    refused_field(await client.post(f"/v0/topics/q/{call}", json=body), "node")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("node", ["n" * 128, "é" * 64])
async def test_a_node_of_128_bytes_is_accepted(client: httpx.AsyncClient, call: str, node: str) -> None:
    await queue(client, 1)
    assert (await client.post(f"/v0/topics/q/{call}", json=GOOD[call] | {"node": node})).is_success


@pytest.mark.parametrize("field", ["max", "lease_ms", "wait_ms"])
@pytest.mark.parametrize("value", NO_U64)
async def test_a_number_of_a_claim_is_a_u64(client: httpx.AsyncClient, field: str, value: Any) -> None:
    await refuse(client, "claim", field, value)


@pytest.mark.parametrize("key", ["", "k" * (MAX_ATTEMPT_KEY_BYTES + 1), 1, []])
async def test_an_attempt_key_is_text_of_128_bytes(client: httpx.AsyncClient, key: Any) -> None:
    await refuse(client, "claim", "attempt_key", key)


@pytest.mark.parametrize("call", SETTLING)
@pytest.mark.parametrize("seqs", [None, 1, "1", {}])
async def test_seqs_are_a_list(client: httpx.AsyncClient, call: str, seqs: Any) -> None:
    await refuse(client, call, "seqs", seqs)


@pytest.mark.parametrize("call", SETTLING)
@pytest.mark.parametrize("value", [-1, 1.5, "1", True, None, [1]])
async def test_a_seq_is_an_integer(client: httpx.AsyncClient, call: str, value: Any) -> None:
    await refuse(client, call, "seqs[1]", [1, value])


@pytest.mark.parametrize("call", SETTLING)
async def test_a_seq_is_a_u64(client: httpx.AsyncClient, call: str) -> None:
    await refuse(client, call, "seqs", [1, 1 << 64])


@pytest.mark.parametrize("call", SETTLING)
async def test_at_most_1000_seqs_are_accepted(client: httpx.AsyncClient, call: str) -> None:
    await refuse(client, call, "seqs", list(range(1, 1002)), "batch_too_large")
    body = GOOD[call] | {"seqs": list(range(1, 1001))}
    assert (await client.post(f"/v0/topics/q/{call}", json=body)).is_success


@pytest.mark.parametrize("call", SETTLING)
@pytest.mark.parametrize("given", [["lease_0000000000000001"], ["", "", ""], ["lease_0000000000000001"] * 3])
async def test_lease_ids_and_seqs_must_have_the_same_length(
    client: httpx.AsyncClient, call: str, given: list[str]
) -> None:
    await queue(client, 1)
    body = GOOD[call] | {"seqs": [1, 2], "lease_ids": given}
    refused_field(await client.post(f"/v0/topics/q/{call}", json=body), "lease_ids")


@pytest.mark.parametrize("call", SETTLING)
@pytest.mark.parametrize(
    "given",
    [
        "x",
        "lease_",
        "lease_000000000000001",
        "lease_00000000000000011",
        "lease_000000000000000G",
        "lease_000000000000000A",
        "LEASE_0000000000000001",
        "0000000000000001",
        "lease_0x00000000000001",
        "lease_ 000000000000001",
        "lease_0000000000000001\n",
        "lease_0000000000000000",
        1,
        None,
    ],
)
async def test_a_malformed_lease_id_is_refused(client: httpx.AsyncClient, call: str, given: Any) -> None:
    await refuse(client, call, "lease_ids[0]", [given])


@pytest.mark.parametrize("call", SETTLING)
async def test_the_invalid_lease_id_is_named(client: httpx.AsyncClient, call: str) -> None:
    body = GOOD[call] | {"seqs": [1, 2, 3], "lease_ids": ["lease_0000000000000001", "", "no"]}
    refused_field(await client.post(f"/v0/topics/q/{call}", json=body), "lease_ids[2]")


@pytest.mark.parametrize("call", SETTLING)
@pytest.mark.parametrize("given", ["lease_0000000000000001", 1, {}])
async def test_lease_ids_are_a_list(client: httpx.AsyncClient, call: str, given: Any) -> None:
    await refuse(client, call, "lease_ids", given)


@pytest.mark.parametrize("value", [*NO_U64, MAX_DELAY_MS + 1])
async def test_a_delay_is_at_most_366_days(client: httpx.AsyncClient, value: Any) -> None:
    await refuse(client, "nack", "delay_ms", value)


async def test_a_delay_may_be_366_days(client: httpx.AsyncClient) -> None:
    await queue(client, 1)
    body = GOOD["nack"] | {"delay_ms": MAX_DELAY_MS, "reason": "r" * MAX_REASON_BYTES}
    assert (await client.post("/v0/topics/q/nack", json=body)).is_success


@pytest.mark.parametrize("value", [0, 1, "false", []])
async def test_penalty_is_true_or_false(client: httpx.AsyncClient, value: Any) -> None:
    await refuse(client, "nack", "penalty", value)


@pytest.mark.parametrize("value", ["r" * (MAX_REASON_BYTES + 1), "é" * (MAX_REASON_BYTES // 2 + 1), 1, {}])
async def test_a_reason_is_text_of_1024_bytes(client: httpx.AsyncClient, value: Any) -> None:
    await refuse(client, "nack", "reason", value)


@pytest.mark.parametrize("value", [None, *NO_U64])
async def test_an_extension_needs_a_duration(client: httpx.AsyncClient, value: Any) -> None:
    await refuse(client, "extend", "lease_ms", value)


@pytest.mark.parametrize("call", SETTLING)
async def test_strict_is_true_or_false(client: httpx.AsyncClient, call: str) -> None:
    refused_field(await client.post(f"/v0/topics/q/{call}?strict=yes", json=GOOD[call]), "strict")


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ([], "states"),
        ("ready", "states"),
        (1, "states"),
        (["leased"], "states[0]"),
        (["ready", "gone"], "states[1]"),
        ([1], "states[0]"),
        ([None], "states[0]"),
    ],
)
async def test_a_purge_of_leased_or_unknown_states_is_refused(
    client: httpx.AsyncClient, value: Any, field: str
) -> None:
    await refuse(client, "purge", field, value)


@pytest.mark.parametrize("value", [0, -1, 10_001, 1.5, "1", True, 1 << 70])
async def test_a_redrive_moves_1_to_10000(client: httpx.AsyncClient, value: Any) -> None:
    await refuse(client, "redrive", "max", value)


@pytest.mark.parametrize("value", [0, -1, 0.0, "1", True, []])
async def test_the_rate_of_a_redrive_is_above_0(client: httpx.AsyncClient, value: Any) -> None:
    await refuse(client, "redrive", "rate_per_s", value)


async def test_the_rate_of_a_redrive_must_be_a_finite_number(client: httpx.AsyncClient) -> None:
    for text in ("1e400", "1" * 5000):
        answer = await client.post("/v0/topics/q/redrive", content=f'{{"rate_per_s":{text}}}', headers=JSON)
        refused_field(answer, "rate_per_s")


@pytest.mark.parametrize("value", ["", "no/name", "-x", 1, []])
async def test_a_redrive_needs_a_source_topic(client: httpx.AsyncClient, value: Any) -> None:
    await refuse(client, "redrive", "from", value)


@pytest.mark.parametrize("value", [0, "yes", []])
async def test_dry_run_is_true_or_false(client: httpx.AsyncClient, value: Any) -> None:
    await refuse(client, "redrive", "dry_run", value)


@pytest.mark.parametrize("value", ["gone", "READY"])
async def test_a_listing_needs_an_existing_state(client: httpx.AsyncClient, value: str) -> None:
    await queue(client)
    refused_field(await client.get(f"/v0/topics/q/leases?state={value}"), "state")


@pytest.mark.parametrize("value", ["x", "AAAAAA", "%F0%9F"])
async def test_an_invalid_cursor_of_the_lease_list_is_refused(client: httpx.AsyncClient, value: str) -> None:
    await queue(client)
    refused_field(await client.get(f"/v0/topics/q/leases?cursor={value}"), "cursor")


async def test_a_cursor_of_the_topic_list_is_refused_by_the_lease_list(client: httpx.AsyncClient) -> None:
    await queue(client)
    await queue(client, name="r")
    cursor = (await client.get("/v0/topics?page_size=1")).json()["next_cursor"]
    refused_field(await client.get(f"/v0/topics/q/leases?cursor={cursor}"), "cursor")


@pytest.mark.parametrize("value", ["-1", "x", "", "1.0"])
async def test_the_size_of_a_page_is_a_number(client: httpx.AsyncClient, value: str) -> None:
    refused_field(await client.get(f"/v0/topics/q/leases?page_size={value}"), "page_size")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "node"),
        ("node=", "node"),
        (f"node={'n' * 129}", "node"),
        ("node=%FF", "node"),
        ("node=w&max=-1", "max"),
        ("node=w&max=x", "max"),
        ("node=w&max=18446744073709551616", "max"),
        ("node=w&lease_ms=-1", "lease_ms"),
        ("node=w&lease_ms=1.5", "lease_ms"),
    ],
)
async def test_a_stream_of_jobs_needs_valid_parameters(client: httpx.AsyncClient, query: str, field: str) -> None:
    await queue(client, 1)
    for name in ("q", "absent"):
        refused_field(await client.get(f"/v0/topics/{name}/work?{query}"), field)


@pytest.mark.parametrize("call", [*GOOD, *OTHERS])
async def test_a_log_is_no_queue(client: httpx.AsyncClient, call: str) -> None:
    await client.put("/v0/topics/log")
    refused(await client.post(f"/v0/topics/log/{call}", json=(GOOD | OTHERS)[call]), 409, "not_a_queue")


@pytest.mark.parametrize("call", [*GOOD, *OTHERS])
async def test_an_absent_queue_is_not_found(client: httpx.AsyncClient, call: str) -> None:
    refused(await client.post(f"/v0/topics/absent/{call}", json=(GOOD | OTHERS)[call]), 404, "topic_not_found")


@pytest.mark.parametrize("call", ["leases", "work?node=w"])
async def test_a_get_on_a_plain_or_absent_topic_is_refused(client: httpx.AsyncClient, call: str) -> None:
    await client.put("/v0/topics/log")
    refused(await client.get(f"/v0/topics/log/{call}"), 409, "not_a_queue")
    refused(await client.get(f"/v0/topics/absent/{call}"), 404, "topic_not_found")


@pytest.mark.parametrize("call", [*GOOD, *OTHERS])
async def test_an_invalid_topic_name_is_refused(client: httpx.AsyncClient, call: str) -> None:
    refused_field(await client.post(f"/v0/topics/-x/{call}", json=(GOOD | OTHERS)[call]), "topic")


@pytest.mark.parametrize("call", ["leases", "work?node=w"])
async def test_a_get_with_an_invalid_topic_name_is_refused(client: httpx.AsyncClient, call: str) -> None:
    refused_field(await client.get(f"/v0/topics/-x/{call}"), "topic")


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_needs_a_body_of_json(client: httpx.AsyncClient, call: str) -> None:
    path = f"/v0/topics/q/{call}"
    refused(await client.post(path, content=b"{}"), 415, "unsupported_media_type")
    refused(await client.post(path, content=b"", headers=JSON), 400, "invalid_request")
    refused(await client.post(path, content=b"[]", headers=JSON), 400, "invalid_request")
    refused(await client.post(path, content=b'{"node":"w",}', headers=JSON), 400, "invalid_request")


@pytest.mark.parametrize("accept", ["application/json", "text/plain", "text/event-stream;q=0", "image/*"])
async def test_a_work_stream_without_a_matching_accept_header_is_not_acceptable(
    client: httpx.AsyncClient, accept: str
) -> None:
    """Checked before anything else."""
    refused(await client.get("/v0/topics/absent/work", headers={"accept": accept}), 406, "not_acceptable")


@pytest.mark.parametrize("accept", ["text/event-stream", "*/*", "text/*", "application/json, text/event-stream;q=0.5"])
async def test_a_work_stream_with_a_matching_accept_header_is_accepted(client: httpx.AsyncClient, accept: str) -> None:
    answer = await client.get("/v0/topics/absent/work?node=w", headers={"accept": accept})
    refused(answer, 404, "topic_not_found")


@pytest.mark.parametrize("call", ["leases", "work"])
async def test_calls_that_show_a_queue_need_get(client: httpx.AsyncClient, call: str) -> None:
    refused(await client.post(f"/v0/topics/q/{call}", json={}), 405, "method_not_allowed")


@pytest.mark.parametrize("call", [*GOOD, *OTHERS])
async def test_calls_that_change_a_queue_need_post(client: httpx.AsyncClient, call: str) -> None:
    refused(await client.get(f"/v0/topics/q/{call}"), 405, "method_not_allowed")
