"""The declared schemas agree with those in kafka-clients, and the client finds a common version."""

from __future__ import annotations

from typing import Any

import pytest

from broker.kafka.apis import APIS
from tests.kafka.java.programs import schemas
from tests.kafka.test_schema_agreement import agrees, messages, span


@pytest.fixture(scope="module")
def theirs(version: str) -> dict[str, dict[str, Any]]:
    return schemas(version)


def test_every_message_has_the_fields_of_kafka_clients(theirs: dict[str, dict[str, Any]], version: str) -> None:
    """In every version that both have. Share groups were different before 4.1."""
    seen = 0
    for name, kind in messages().items():
        if name not in theirs or (version < "4.1" and "Share" in name):
            continue
        described = theirs[name]
        api, (first, last) = APIS[described["apiKey"]], span(described["validVersions"])
        for number in range(max(api.first, first), min(api.last, last) + 1):
            agrees(kind, described, number)
            seen += 1
    assert seen > 200


def test_kafka_clients_support_a_version_of_every_served_api(theirs: dict[str, dict[str, Any]], version: str) -> None:
    requests = [each for each in theirs.values() if each.get("type") == "request" and each["apiKey"] in APIS]
    assert len(requests) >= 30
    for each in requests:
        if version < "4.1" and ("Share" in each["name"] or each["validVersions"] == "none"):
            continue
        api, (first, last) = APIS[each["apiKey"]], span(each["validVersions"])
        assert max(api.first, first) <= min(api.last, last), each["name"]
