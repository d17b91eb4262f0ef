"""The dashboard and the alert rules name only metrics and labels that a broker has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.http.calls import append
from tests.http.queue_calls import queue

FILES = Path(__file__).resolve().parents[2] / "helm" / "files"
#: What Prometheus itself puts on every sample of a target.
TARGET = {"instance", "job"}
NAME = re.compile(r"\btopics_[a-z_]+")
BY = re.compile(r"\b(?:by|on)\s*\(([a-z_, ]+)\)")
MATCHED = re.compile(r"[{,]\s*([a-z_]+)\s*[=!]~?\"")


def expressions() -> Iterator[tuple[str, str, str]]:
    """(whose, expression, text that shows labels)."""
    dashboard: Any = json.loads((FILES / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            shown = " ".join(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            yield panel["title"], target["expr"], shown
    rules: Any = yaml.safe_load((FILES / "alerts.yaml").read_text())
    for rule in rules["groups"][0]["rules"]:
        shown = " ".join(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
        yield rule["alert"], rule["expr"], shown


async def labels_by_name(client: httpx.AsyncClient) -> dict[str, set[str]]:
    """Of a broker that has one of everything."""
    await append(client, "t", {"data": 1})
    await client.put("/v0/topics/small", json={"cap_records": 1})
    await append(client, "small", {"data": 1})
    await append(client, "small", {"data": 2})
    await client.post("/v0/topics/small/diff", json={})
    await queue(client, 1, name="jobs")
    await client.post("/v0/topics/jobs/claim", json={"node": "w"})
    await client.put("/v0/routers/r", json={"source": "t", "dest": "copies"})
    await client.get("/v0/metrics")
    answer = await client.get("/v0/metrics")
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(answer.text):
        found.setdefault(family.name + "_total" if family.type == "counter" else family.name, set())
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def unknown(expression: str, shown: str, there: dict[str, set[str]]) -> set[str]:
    """Metrics and labels in an expression that no broker has."""
    named = set(NAME.findall(expression))
    labels = {label.strip() for group in BY.findall(expression) for label in group.split(",")}
    labels |= set(MATCHED.findall(expression)) | set(shown.split())
    has = TARGET.union({"le"}, *(there.get(name, set[str]()) for name in named))
    return (named - set(there)) | (labels - has)


async def test_they_name_what_there_is(client: httpx.AsyncClient) -> None:
    there = await labels_by_name(client)
    for whose, expression, shown in expressions():
        assert NAME.search(expression), whose
        assert not unknown(expression, shown, there), whose


@pytest.mark.parametrize(
    ("expression", "shown", "wrong"),
    [
        ("rate(topics_wal_writes_total[5m])", "", {"topics_wal_writes_total"}),
        ("topics_wal_fsyncs", "", {"topics_wal_fsyncs"}),
        ("sum by (shard, disk) (topics_wal_failed)", "", {"disk"}),
        ('topics_ready{zone="a"}', "", {"zone"}),
        ("topics_ready", "shard", {"shard"}),
    ],
)
async def test_what_there_is_not_is_found(
    client: httpx.AsyncClient, expression: str, shown: str, wrong: set[str]
) -> None:
    assert unknown(expression, shown, await labels_by_name(client)) == wrong


def test_there_is_a_panel_or_a_rule_for_what_operators_are_told_to_watch() -> None:
    named = {name for _, expression, _ in expressions() for name in NAME.findall(expression)}
    assert {"topics_ready", "topics_wal_failed", "topics_wal_full", "topics_pressure_step"} <= named
    assert len([*expressions()]) > 40


def test_every_rule_says_what_is_wrong_and_how_bad() -> None:
    rules: Any = yaml.safe_load((FILES / "alerts.yaml").read_text())
    for rule in rules["groups"][0]["rules"]:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["annotations"]["description"].endswith(".")
