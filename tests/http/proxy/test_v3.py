"""REST v3: the requests of Confluent's tools."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import Any

import httpx
import pytest

from broker.wiring import Broker
from storage import CleanupPolicy, Engine, TopicConfig
from tests.http.calls import read
from tests.http.proxy.calls import ACCEPT_JSON, b64, produce, refused, send, subscribed, values


@pytest.fixture
def cluster(engine: Engine) -> str:
    return f"/v3/clusters/{engine.cluster_id}"


async def get(client: httpx.AsyncClient, path: str) -> dict[str, Any]:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


async def test_the_cluster_list_has_a_single_cluster_with_a_single_broker(
    client: httpx.AsyncClient, engine: Engine, cluster: str
) -> None:
    found = await get(client, "/v3/clusters")
    assert found["kind"] == "KafkaClusterList"
    assert found["metadata"] == {"self": "http://localhost/v3/clusters", "next": None}
    [only] = found["data"]
    assert only["cluster_id"] == engine.cluster_id
    assert only["metadata"]["self"] == f"http://localhost{cluster}"
    assert only["topics"] == {"related": f"http://localhost{cluster}/topics"}
    assert await get(client, cluster) == only
    [broker] = (await get(client, f"{cluster}/brokers"))["data"]
    assert (broker["kind"], broker["broker_id"], broker["host"]) == ("KafkaBroker", 1, "localhost")
    assert await get(client, f"{cluster}/brokers/1") == broker
    refused(await client.get("/v3/clusters/another/topics"), 404, 404)


async def test_a_topic_is_created_changed_and_deleted(client: httpx.AsyncClient, engine: Engine, cluster: str) -> None:
    body = {"topic_name": "t", "partitions_count": 1, "configs": [{"name": "retention.ms", "value": "60000"}]}
    answer = await client.post(f"{cluster}/topics", json=body)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert made == {
        "kind": "KafkaTopic",
        "metadata": {
            "self": f"http://localhost{cluster}/topics/t",
            "resource_name": f"crn:///kafka={engine.cluster_id}/topic=t",
        },
        "cluster_id": engine.cluster_id,
        "topic_name": "t",
        "is_internal": False,
        "replication_factor": 1,
        "partitions_count": 1,
        "partitions": {"related": f"http://localhost{cluster}/topics/t/partitions"},
        "configs": {"related": f"http://localhost{cluster}/topics/t/configs"},
        "partition_reassignments": {"related": f"http://localhost{cluster}/topics/t/partitions/-/reassignment"},
        "authorized_operations": [],
    }
    assert engine.state("t").config.ttl_ms == 60_000
    assert await get(client, f"{cluster}/topics/t") == made
    assert (await get(client, f"{cluster}/topics"))["data"] == [made]
    refused(await client.post(f"{cluster}/topics", json=body), 400, 40002, "Topic 't' already exists.")
    assert (await client.delete(f"{cluster}/topics/t")).status_code == 204
    missing = "This server does not host this topic-partition."
    refused(await client.delete(f"{cluster}/topics/t"), 404, 40403, missing)
    refused(await client.get(f"{cluster}/topics/t"), 404, 40403, missing)


@pytest.mark.parametrize(
    "body",
    [
        {"topic_name": "a b"},
        {"topic_name": "t", "replication_factor": 3},
        {"topic_name": "t", "partitions_count": 0},
        {"topic_name": "t", "configs": [{"name": "retention.ms", "value": "soon"}]},
        {"topic_name": "t", "configs": [{"name": "nonsense", "value": "1"}]},
        {"name": "t"},
    ],
)
async def test_an_invalid_topic_is_refused_and_not_created(
    client: httpx.AsyncClient, cluster: str, body: dict[str, Any]
) -> None:
    refused(await client.post(f"{cluster}/topics", json=body), 400, 40002)
    assert (await client.get("/topics")).json() == []


async def test_validate_only_creates_no_topic(client: httpx.AsyncClient, cluster: str) -> None:
    answer = await client.post(f"{cluster}/topics", json={"topic_name": "t", "validate_only": True})
    assert answer.status_code == 201
    assert (await client.get("/topics")).json() == []


async def test_partitions_are_described(client: httpx.AsyncClient, cluster: str) -> None:
    await produce(client, "t", 1)
    [partition] = (await get(client, f"{cluster}/topics/t/partitions"))["data"]
    assert (partition["kind"], partition["partition_id"]) == ("KafkaPartition", 0)
    assert await get(client, f"{cluster}/topics/t/partitions/0") == partition
    [replica] = (await get(client, f"{cluster}/topics/t/partitions/0/replicas"))["data"]
    assert (replica["broker_id"], replica["is_leader"], replica["is_in_sync"]) == (1, True, True)
    assert await get(client, f"{cluster}/topics/t/partitions/0/replicas/1") == replica
    assert (await get(client, f"{cluster}/brokers/1/partition-replicas"))["data"] == [replica]
    for rest in ("partitions/1", "partitions/0/replicas/2", "partitions/1/replicas/1", "partitions/1/offset"):
        refused(await client.get(f"{cluster}/topics/t/{rest}"), 404, 40403)
    refused(await client.get(f"{cluster}/brokers/2/partition-replicas"), 400, 40002)
    for path in ("topics/t/partitions/-/reassignment", "topics/-/partitions/-/reassignment"):
        assert (await get(client, f"{cluster}/{path}"))["data"] == []
    refused(await client.get(f"{cluster}/topics/u/partitions/-/reassignment"), 404, 40403)


async def test_earliest_and_latest_offset_of_a_partition_are_returned(
    client: httpx.AsyncClient, engine: Engine, cluster: str
) -> None:
    await engine.put_topic("t", TopicConfig(cap_records=3))
    await produce(client, "t", *range(5))
    url = f"{cluster}/topics/t/partitions/0/offset"
    found = await get(client, url)
    assert found == {
        "kind": "KafkaPartition",
        "metadata": {
            "self": f"http://localhost{url}",
            "resource_name": f"crn:///kafka={engine.cluster_id}/topic=t/partition=0/offset_type=earliest_and_latest",
        },
        "cluster_id": engine.cluster_id,
        "topic_name": "t",
        "partition_id": 0,
        "earliest_offset": 2,
        "latest_offset": 5,
    }
    assert await get(client, f"{url}?offset_type=earliest_and_latest") == found
    refused(await client.get(f"{url}?offset_type=latest"), 400, 40002)


async def test_settings_of_the_broker_are_shown(client: httpx.AsyncClient, cluster: str) -> None:
    found = await get(client, f"{cluster}/brokers/1/configs")
    assert (found["kind"], found["metadata"]["self"]) == (
        "KafkaBrokerConfigList",
        f"http://localhost{cluster}/brokers/1/configs",
    )
    assert (await get(client, f"{cluster}/brokers/-/configs"))["data"] == found["data"]
    one = await get(client, f"{cluster}/brokers/1/configs/num.partitions")
    assert one in found["data"]
    assert (one["broker_id"], one["name"], one["value"], one["is_read_only"]) == (1, "num.partitions", "1", True)
    refused(await client.get(f"{cluster}/brokers/1/configs/colour"), 404, 40403)
    refused(await client.get(f"{cluster}/brokers/2/configs"), 400, 40002)
    assert (await get(client, f"{cluster}/broker-configs"))["data"] == []


async def test_authorized_operations_are_included_on_request(client: httpx.AsyncClient, cluster: str) -> None:
    await produce(client, "t", 1)
    found = await get(client, f"{cluster}/topics/t?include_authorized_operations=true")
    assert set(found["authorized_operations"]) == {
        *("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
    }


async def test_settings_are_shown_and_changed(client: httpx.AsyncClient, engine: Engine, cluster: str) -> None:
    await produce(client, "t", 1)
    path = f"{cluster}/topics/t/configs"
    names = [each["name"] for each in (await get(client, path))["data"]]
    assert names == sorted(names)
    assert {"cleanup.policy", "retention.ms", "retention.bytes", "max.message.bytes"} <= set(names)
    found = await get(client, f"{path}/retention.ms")
    assert (found["value"], found["is_default"], found["source"]) == ("-1", True, "DEFAULT_CONFIG")
    assert (await client.put(f"{path}/retention.ms", json={"value": "5000"})).status_code == 204
    found = await get(client, f"{path}/retention.ms")
    assert (found["value"], found["is_default"], found["source"]) == ("5000", False, "DYNAMIC_TOPIC_CONFIG")
    assert engine.state("t").config.ttl_ms == 5000
    assert (await client.delete(f"{path}/retention.ms")).status_code == 204
    assert engine.state("t").config.ttl_ms == 0
    wanted = [{"name": "retention.bytes", "value": "70000"}, {"name": "retention.ms", "operation": "DELETE"}]
    assert (await client.post(f"{path}:alter", json={"data": wanted})).status_code == 204
    assert engine.state("t").config.cap_bytes == 70_000
    # All or nothing.
    wanted = [{"name": "retention.bytes", "value": "90000"}, {"name": "retention.ms", "value": "x"}]
    refused(await client.post(f"{path}:alter", json={"data": wanted}), 400, 40002)
    assert engine.state("t").config.cap_bytes == 70_000
    refused(await client.put(f"{path}/nonsense", json={"value": "1"}), 400, 40002)


async def test_consumer_groups_and_their_lags_are_returned(client: httpx.AsyncClient, cluster: str) -> None:
    await produce(client, "t", *range(5))
    await produce(client, "u", *range(3))
    await client.put("/v0/topics/t/consumers/mine", json={})
    path = await subscribed(client, "t", "u", group="a group")
    assert len(await values(client, path)) == 8
    offsets = [{"topic": "t", "partition": 0, "offset": 1}, {"topic": "u", "partition": 0, "offset": 1}]
    await send(client, f"{path}/offsets", {"offsets": offsets})
    [group] = (await get(client, f"{cluster}/consumer-groups"))["data"]
    assert (group["consumer_group_id"], group["state"], group["type"]) == ("a group", "STABLE", "CLASSIC")
    assert (group["is_simple"], group["is_mixed_consumer_group"], group["partition_assignor"]) == (
        False,
        False,
        "range",
    )
    url = f"{cluster}/consumer-groups/a%20group"
    assert group["metadata"]["self"] == f"http://localhost{url}"
    assert await get(client, url) == group
    [member] = (await get(client, f"{url}/consumers"))["data"]
    assert member["consumer_id"] == "i"
    assert await get(client, f"{url}/consumers/i") == member
    assignments = (await get(client, f"{url}/consumers/i/assignments"))["data"]
    assert [(each["topic_name"], each["partition_id"]) for each in assignments] == [("t", 0), ("u", 0)]
    one = await get(client, f"{url}/consumers/i/assignments/u/partitions/0")
    assert one == assignments[1]
    assert one["kind"] == "KafkaConsumerAssignment"
    assert one["partition"] == {"related": f"http://localhost{cluster}/topics/u/partitions/0"}
    assert await get(client, one["lag"]["related"].removeprefix("http://broker"))
    for rest in ("nobody", "nobody/assignments", "i/assignments/u/partitions/1", "i/assignments/v/partitions/0"):
        refused(await client.get(f"{url}/consumers/{rest}"), 404, 40403)
    lags = (await get(client, f"{url}/lags"))["data"]
    assert [(each["topic_name"], each["current_offset"], each["log_end_offset"], each["lag"]) for each in lags] == [
        ("t", 2, 5, 3),
        ("u", 2, 3, 1),
    ]
    assert {each["consumer_id"] for each in lags} == {"i"}
    assert await get(client, f"{url}/lags/u/partitions/0") == lags[1]
    summary = await get(client, f"{url}/lag-summary")
    assert (summary["total_lag"], summary["max_lag"], summary["max_lag_topic_name"]) == (4, 3, "t")
    await client.delete(path)
    assert (await get(client, url))["state"] == "EMPTY"
    for rest in ("", "/lags", "/lag-summary", "/consumers"):
        refused(await client.get(f"{cluster}/consumer-groups/nobody{rest}"), 404, 40403)


# -- records -----------------------------------------------------------------------------------------------------------


async def post(client: httpx.AsyncClient, path: str, content: Any, **headers: str) -> list[dict[str, Any]]:
    answer = await client.post(path, content=content, headers={"content-type": "application/json", **headers})
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_every_record_has_a_receipt(client: httpx.AsyncClient, engine: Engine, cluster: str) -> None:
    sent: list[dict[str, Any]] = [
        {"key": {"type": "STRING", "data": "k"}, "value": {"type": "JSON", "data": {"a": 1}}},
        {"value": {"type": "BINARY", "data": b64(b"\xff\x00")}, "headers": [{"name": "h", "value": b64("x")}]},
        {"value": {"type": "STRING", "data": "text"}, "timestamp": "2024-01-02T03:04:05Z"},
        {"key": {"type": "STRING", "data": "gone"}, "value": None},
    ]
    receipts = await post(client, f"{cluster}/topics/t/records", "".join(map(json.dumps, sent)))
    assert [each["offset"] for each in receipts] == [0, 1, 2, 3]
    first = receipts[0]
    assert first.pop("timestamp").endswith("Z")
    assert first == {
        "error_code": 200,
        "cluster_id": engine.cluster_id,
        "topic_name": "t",
        "partition_id": 0,
        "offset": 0,
        "key": {"type": "STRING", "size": 1},
        "value": {"type": "JSON", "size": 8},
    }
    accept = {"accept": "application/vnd.kafka.binary.v2+json"}
    found = (await client.get("/topics/t/partitions/0/records", headers=accept)).json()
    values = [b64('{"a": 1}'), b64(b"\xff\x00"), b64("text"), None]
    assert [each["value"] for each in found] == values
    assert found[1]["headers"] == sent[1]["headers"]
    assert found[2]["timestamp"] == 1_704_164_645_000


async def test_a_bad_record_spoils_no_other(client: httpx.AsyncClient, cluster: str) -> None:
    good = json.dumps({"value": {"type": "JSON", "data": 1}})
    bad = json.dumps({"value": {"type": "AVRO", "data": 1}})
    receipts = await post(client, f"{cluster}/topics/t/records", f"{good}\n{bad}\n{good}")
    assert [each["error_code"] for each in receipts] == [200, 40002, 200]
    assert [each["data"] for each in (await read(client, "t"))["records"]] == [1, 1]


@pytest.mark.parametrize("content", ["", "[1]x", "{", '{"value":{"type":"JSON","data":1}', "}", '{"value":1}'])
async def test_an_invalid_record_gets_an_error_receipt_and_creates_no_topic(
    client: httpx.AsyncClient, cluster: str, content: str
) -> None:
    [receipt] = await post(client, f"{cluster}/topics/t/records", content)
    assert receipt["error_code"] in (400, 40002)
    assert (await client.get("/topics")).json() == []


async def test_a_repeated_body_is_written_once(client: httpx.AsyncClient, cluster: str) -> None:
    content = json.dumps({"value": {"type": "JSON", "data": 1}})
    receipts = [
        (await post(client, f"{cluster}/topics/t/records", content, **{"idempotency-key": "k"}))[0] for _ in range(2)
    ]
    assert [each["offset"] for each in receipts] == [0, 0]


async def test_streamed_records_are_written_with_any_chunk_size(
    broker: Broker, client: httpx.AsyncClient, cluster: str
) -> None:
    """In pieces that end anywhere."""
    text = "".join(json.dumps({"value": {"type": "STRING", "data": f'"{n}" {{\\'}}) for n in range(30)).encode()
    for size in (1, 7, 64):

        async def content(size: int = size) -> Any:
            for at in range(0, len(text), size):
                yield text[at : at + size]
                await asyncio.sleep(0)

        receipts = await post(client, f"{cluster}/topics/t{size}/records", content())
        assert [each["offset"] for each in receipts] == list(range(30))


async def test_a_batch_answer_lists_successes_and_failures(client: httpx.AsyncClient, cluster: str) -> None:
    entries = [
        {"id": "a", "value": {"type": "JSON", "data": 1}},
        {"id": "b", "value": {"type": "BINARY", "data": "?"}},
        {"id": "c", "value": {"type": "JSON", "data": 3}, "key": {"type": "STRING", "data": "k"}},
    ]
    answer = await client.post(f"{cluster}/topics/t/records:batch", json={"entries": entries})
    assert answer.status_code == 207
    done = answer.json()
    assert [(each["id"], each["offset"]) for each in done["successes"]] == [("a", 0), ("c", 1)]
    assert [(each["id"], each["error_code"]) for each in done["failures"]] == [("b", 40002)]


async def test_records_for_an_absent_partition_fail_and_the_rest_is_written(
    client: httpx.AsyncClient, cluster: str, engine: Engine
) -> None:
    await engine.put_topic("t", TopicConfig(partitions=2))
    one = {"type": "JSON", "data": 1}
    entries = [{"id": f"p{number}", "partition_id": number, "value": one} for number in (0, 2, 1)]
    answer = await client.post(f"{cluster}/topics/t/records:batch", json={"entries": entries})
    assert answer.status_code == 207
    done = answer.json()
    assert [(each["id"], each["partition_id"]) for each in done["successes"]] == [("p0", 0), ("p1", 1)]
    assert [(each["id"], each["error_code"]) for each in done["failures"]] == [("p2", 40402)]
    body = b"".join(json.dumps(each).encode() for each in entries)
    receipts = await post(client, f"{cluster}/topics/t/records", body)
    assert [each["error_code"] for each in receipts] == [200, 40402, 200]


async def test_a_receipt_has_the_timestamp_of_the_record(client: httpx.AsyncClient, cluster: str) -> None:
    sent: list[Any] = [{"value": {"type": "JSON", "data": 1}, "timestamp": 1_700_000_000_123}]
    sent += [{"value": {"type": "JSON", "data": 2}}]
    body = b"".join(json.dumps(each).encode() for each in sent)
    for _ in range(2):
        receipts = await post(client, f"{cluster}/topics/t/records", body, **{"idempotency-key": "k"})
        assert [each["offset"] for each in receipts] == [0, 1]
        stamps = [datetime.fromisoformat(each["timestamp"]) for each in receipts]
        records = (await client.get("/topics/t/partitions/0/records", headers=ACCEPT_JSON)).json()
        assert [round(each.timestamp() * 1000) for each in stamps] == [each["timestamp"] for each in records]
        assert receipts[0]["timestamp"] == "2023-11-14T22:13:20.123Z"


async def test_a_compacted_topic_takes_no_record_without_a_key(
    client: httpx.AsyncClient, cluster: str, engine: Engine
) -> None:
    await engine.put_topic("t", TopicConfig(cleanup_policy=CleanupPolicy.COMPACT))
    value = {"type": "JSON", "data": 1}
    entries = [{"id": "a", "value": value}, {"id": "b", "value": value, "key": {"type": "STRING", "data": "k"}}]
    done = (await client.post(f"{cluster}/topics/t/records:batch", json={"entries": entries})).json()
    assert [each["id"] for each in done["successes"]] == ["b"]
    [failed] = done["failures"]
    assert (failed["id"], failed["error_code"]) == ("a", 50002)
    assert "without key" in failed["message"]
    [offset] = await produce(client, "t", 1)
    assert (offset["offset"], offset["error_code"]) == (None, 50002)
    assert engine.state("t").head_seq == 1


@pytest.mark.parametrize("entries", [[], [{"value": None}], [{"id": "a"}, {"id": "a"}], [{"id": "a b"}]])
async def test_a_batch_has_entries_with_ids(client: httpx.AsyncClient, cluster: str, entries: Any) -> None:
    refused(await client.post(f"{cluster}/topics/t/records:batch", json={"entries": entries}), 400, 40002)
