"""`topics put orders --ttl-ms 60000` changed a topic from fsync to disk, with exit status 0."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from storage import Durability, TopicConfig
from storage.state.consumers.values import ConsumerConfig
from storage.state.routers.router import Definition
from tests.client.real_broker import RealBroker
from tests.unit.storage.machine import Machine
from topics_client import AsyncClient, Client
from topics_client.cli import app


@pytest.fixture
def broker(tmp_path: Path) -> Generator[RealBroker]:
    broker = RealBroker(tmp_path)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


def test_the_command_line_changes_only_the_given_settings(broker: RealBroker) -> None:
    def topics(*arguments: str) -> dict[str, Any]:
        result = CliRunner().invoke(app, [*arguments, "--url", broker.url, "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    made = topics("put", "orders", "--durability", "fsync", "--cap-records", "1000")
    assert made["created"] is True
    changed = topics("put", "orders", "--ttl-ms", "60000")
    assert (changed["created"], changed["config"]) == (False, made["config"] | {"ttl_ms": 60_000})
    replaced = topics("put", "orders", "--ttl-ms", "60000", "--replace")
    assert (replaced["config"]["durability"], replaced["config"]["cap_records"]) == ("disk", 0)

    topics("routers", "put", "r", "orders", "copies", "--tag", "x*", "--no-node")
    router = topics("routers", "put", "r", "orders", "copies", "--no-tags")
    assert (router["filter"], router["preserve_node"], router["preserve_tag"]) == (["tag", "Glob", "x*"], False, False)
    assert topics("routers", "put", "r", "orders", "copies", "--all-tags")["filter"] is None

    topics("consumers", "put", "orders", "c", "--consistency", "strictly_at_once")
    consumer = topics("consumers", "put", "orders", "c", "--persist-every", "9")
    assert (consumer["consistency"], consumer["persist_every"]) == ("strictly_at_once", 9)
    assert topics("consumers", "put", "orders", "c", "--replace")["consistency"] == "at_least_once"


async def test_the_client_changes_only_the_given_settings(broker: RealBroker) -> None:
    with Client(broker.url) as client:
        client.put_topic("q", type="queue", durability="fsync", dead_letter="dead", priority=3)
        changed = client.change_topic("q", lease_ms=5000, dead_letter=None, priority=None).config
        assert (changed["durability"], changed["lease_ms"]) == ("fsync", 5000)
        assert (changed["dead_letter"], changed["priority"]) == (None, None)
        client.put_router("r", "a", "b", filter="x", preserve_node=False)
        router = client.change_router("r", filter=None)
        assert (router.filter, router.preserve_node) == (None, False)
        client.consumers.put("a", "c", consistency="strictly_at_once")
        assert client.consumers.change("a", "c", persist_every=5).consistency == "strictly_at_once"
    async with AsyncClient(broker.url) as client:
        assert (await client.change_topic("q", lease_ms=6000)).config["durability"] == "fsync"
        assert (await client.change_router("r", preserve_tag=False)).preserve_node is False
        assert (await client.consumers.change("a", "c", persist_every=6)).consistency == "strictly_at_once"


async def test_a_change_survives_a_power_cut(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC, cap_records=1000))
    await engine.routers.put("r", Definition(source="t", dest="u", filter=["tag", "Eq", "x"]))
    await engine.consumers.put("t", "c", ConsumerConfig(persist_every=7))
    await engine.change_topic("t", lambda config: msgspec.structs.replace(config, ttl_ms=60_000))
    await engine.routers.change("r", lambda old: msgspec.structs.replace(old, preserve_node=False))
    await engine.consumers.change("t", "c", lambda old: msgspec.structs.replace(old, persist_every=9))
    engine = await machine.cut_power()
    config = engine.state("t").config
    assert (config.durability, config.cap_records, config.ttl_ms) == (Durability.FSYNC, 1000, 60_000)
    definition = engine.routers.state("r").definition
    assert (definition.filter, definition.preserve_node) == (["tag", "Eq", "x"], False)
    assert engine.consumers.state("t", "c").config.persist_every == 9
