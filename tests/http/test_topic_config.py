"""A topic's settings: defaults, resolution, clamping, and every invalid value."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from schemas.config import TopicConfig
from tests.http.calls import JSON, refused, refused_field

DEFAULTS: dict[str, Any] = {
    "type": "log",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durability": "disk",
    "durable": False,
    "priority": None,
    "auto_priority": True,
    "auto_create": True,
    "dedupe_node": True,
    "idempotency_window_ms": 120_000,
    "retention": "all",
    "consumed_max_bytes": 0,
    "partitions": 1,
    "lease_ms": 30_000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "leases_durable": False,
    "retry_backoff_ms": 0,
    "retry_backoff_max_ms": 3_600_000,
    "cleanup_policy": "delete",
    "max_message_bytes": 0,
    "compression_type": "producer",
}
U64_FIELDS = [
    "ttl_ms",
    "cap_records",
    "cap_bytes",
    "idempotency_window_ms",
    "consumed_max_bytes",
    "lease_ms",
    "claim_jitter_ms",
    "max_deliveries",
    "retry_backoff_ms",
    "retry_backoff_max_ms",
    "max_message_bytes",
]
FLAGS = ["durable", "auto_priority", "auto_create", "dedupe_node", "leases_durable"]
CHOICES = ["type", "discard", "durability", "retention", "cleanup_policy", "compression_type"]
NO_U64 = ["-1", "18446744073709551616", "1.5", "true", '"1"', "[]", "{}", "9" * 5000, "1e400"]


async def put(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await client.put("/v0/topics/t", json=fields)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()["config"]


@pytest.mark.parametrize("kind", ["log", "queue"])
async def test_every_field_is_returned_with_its_default(client: httpx.AsyncClient, kind: str) -> None:
    config = await put(client, type=kind)
    TopicConfig.model_validate(config)
    assert config == {**DEFAULTS, "type": kind}


async def test_a_null_setting_gets_its_default(client: httpx.AsyncClient) -> None:
    assert await put(client, **dict.fromkeys(DEFAULTS)) == DEFAULTS


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
@pytest.mark.parametrize("durable", [None, True, False])
async def test_durability_wins_over_durable(client: httpx.AsyncClient, durability: str, durable: bool | None) -> None:
    config = await put(client, durability=durability, durable=durable)
    assert config["durability"] == durability
    assert config["durable"] is (durability == "fsync")


@pytest.mark.parametrize(("durable", "durability"), [(True, "fsync"), (False, "disk"), (None, "disk")])
async def test_durable_applies_if_durability_is_omitted(
    client: httpx.AsyncClient, durable: bool | None, durability: str
) -> None:
    assert (await put(client, durable=durable))["durability"] == durability


@pytest.mark.parametrize(
    ("field", "sent", "stored"),
    [
        ("priority", 5000, 1000),
        ("priority", -5000, -1000),
        ("priority", 7, 7),
        ("lease_ms", 0, 100),
        ("lease_ms", 2**64 - 1, 86_400_000),
        ("claim_jitter_ms", 6000, 5000),
    ],
)
async def test_a_setting_out_of_range_is_clamped(client: httpx.AsyncClient, field: str, sent: int, stored: int) -> None:
    assert (await put(client, **{field: sent}))[field] == stored


async def test_the_greatest_numbers_are_kept(client: httpx.AsyncClient) -> None:
    assert (await put(client, ttl_ms=2**64 - 1))["ttl_ms"] == 2**64 - 1


async def test_settings_omitted_from_a_put_return_to_their_defaults(client: httpx.AsyncClient) -> None:
    await put(client, cap_records=5, discard="reject", durable=True, priority=3)
    assert await put(client) == DEFAULTS


async def test_the_state_of_a_topic_has_its_configured_settings(client: httpx.AsyncClient) -> None:
    config = await put(client, cap_records=5, dead_letter="dead", lease_ms=1)
    assert (await client.get("/v0/topics/t")).json()["config"] == config


async def refuse(client: httpx.AsyncClient, text: str, field: str) -> None:
    refused_field(await client.put("/v0/topics/t", content=text, headers=JSON), field)
    refused(await client.get("/v0/topics/t"), 404, "topic_not_found")


@pytest.mark.parametrize("field", U64_FIELDS)
@pytest.mark.parametrize("value", NO_U64)
async def test_a_number_is_a_u64(client: httpx.AsyncClient, field: str, value: str) -> None:
    await refuse(client, f'{{"{field}":{value}}}', field)


@pytest.mark.parametrize("value", ["2147483648", "-2147483649", "1.5", "true", '"1"'])
async def test_a_priority_is_an_i32(client: httpx.AsyncClient, value: str) -> None:
    await refuse(client, f'{{"priority":{value}}}', "priority")


@pytest.mark.parametrize("field", FLAGS)
@pytest.mark.parametrize("value", ["0", "1", '"true"', "[]"])
async def test_a_flag_must_be_true_or_false(client: httpx.AsyncClient, field: str, value: str) -> None:
    await refuse(client, f'{{"{field}":{value}}}', field)


@pytest.mark.parametrize("field", CHOICES)
@pytest.mark.parametrize("value", ['"other"', '""', "1", "true"])
async def test_an_unknown_choice_is_refused(client: httpx.AsyncClient, field: str, value: str) -> None:
    await refuse(client, f'{{"{field}":{value}}}', field)


@pytest.mark.parametrize("value", ["0", "1025", "-1", "1.5", "true"])
async def test_partitions_are_1_to_1024(client: httpx.AsyncClient, value: str) -> None:
    await refuse(client, f'{{"partitions":{value}}}', "partitions")


@pytest.mark.parametrize("value", ['"t"', '"-x"', '""', "1", '["a"]'])
async def test_an_invalid_dead_letter_topic_is_refused(client: httpx.AsyncClient, value: str) -> None:
    await refuse(client, f'{{"dead_letter":{value}}}', "dead_letter")


@pytest.mark.parametrize("body", ["null", "[]", "1", '"x"'])
async def test_settings_are_an_object(client: httpx.AsyncClient, body: str) -> None:
    await refuse(client, body, "body")


async def test_an_invalid_put_changes_no_setting(client: httpx.AsyncClient) -> None:
    config = await put(client, ttl_ms=77)
    refused_field(await client.put("/v0/topics/t", json={"ttl_ms": 1, "discard": "no"}), "discard")
    assert (await client.get("/v0/topics/t")).json()["config"] == config


@pytest.mark.parametrize("field", ['"ttl_ms":1', '"cap_records":1', '"cap_bytes":1', '"retention":"consumed"'])
async def test_a_compacted_topic_without_delete_refuses_retention_settings(
    client: httpx.AsyncClient, field: str
) -> None:
    await refuse(client, f'{{"cleanup_policy":"compact",{field}}}', field.split('"')[1])
    assert (await put(client, cleanup_policy="compact"))["cleanup_policy"] == "compact"
    assert (await put(client, cleanup_policy="compact,delete", ttl_ms=1))["ttl_ms"] == 1
