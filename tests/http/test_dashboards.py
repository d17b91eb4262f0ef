"""The dashboard and the alert rules name only metrics and labels that a broker has."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from broker.settings import Settings
from broker.telemetry.log_events import ALL as EVENTS
from broker.telemetry.metric_table import ALL
from broker.wiring import Broker
from tests.http.conftest import client_of
from tests.http.everything import use_everything
from tests.http.test_metric_table import OF_A_BUCKET, OF_A_GATEWAY

FILES = Path(__file__).resolve().parents[2] / "helm" / "files"
KEY = "a-key-for-everything"
#: The labels that Prometheus itself adds to every sample.
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


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", api_keys=KEY, max_watch_sessions=1)


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(broker) as client:
        client.headers["authorization"] = f"Bearer {KEY}"
        yield client


@pytest.fixture
async def there(client: httpx.AsyncClient, broker: Broker) -> dict[str, set[str]]:
    """The labels of each metric of a broker in which everything was used."""
    await use_everything(client, broker)
    answer = await client.get("/v0/metrics")
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(answer.text):
        found.setdefault(family.name + "_total" if family.type == "counter" else family.name, set())
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    for metric in ALL:  # of a node of a cluster: tests/gateway/test_nodes.py, tests/http/test_bucket_metrics.py
        if metric.name.startswith((*OF_A_GATEWAY, OF_A_BUCKET)):
            names = [metric.exposed] + [f"{metric.name}_bucket"] * (metric.kind == "histogram")
            found |= {name: {*metric.labels.split(), "cell"} for name in names}
    return found


def unknown(expression: str, shown: str, there: dict[str, set[str]]) -> set[str]:
    """Metrics and labels in an expression that no broker has."""
    named = set(NAME.findall(expression))
    labels = {label.strip() for group in BY.findall(expression) for label in group.split(",")}
    labels |= set(MATCHED.findall(expression)) | set(shown.split())
    has = TARGET.union({"le"}, *(there.get(name, set[str]()) for name in named))
    return (named - set(there)) | (labels - has)


async def test_dashboards_and_rules_name_only_existing_metrics_and_labels(there: dict[str, set[str]]) -> None:
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
async def test_an_unknown_metric_or_label_is_reported(
    there: dict[str, set[str]], expression: str, shown: str, wrong: set[str]
) -> None:
    assert unknown(expression, shown, there) == wrong


def test_essential_metrics_have_a_panel_or_a_rule() -> None:
    named = {name for _, expression, _ in expressions() for name in NAME.findall(expression)}
    assert {"topics_ready", "topics_wal_failed", "topics_wal_full", "topics_pressure_step"} <= named
    assert {"topics_consumer_lag", "topics_redelivered_jobs_total", "topics_backups_failed_total"} <= named
    assert len([*expressions()]) > 60


PANEL = {"id", "type", "title", "description", "datasource", "gridPos", "fieldConfig", "options", "targets"}
ROW = {"id", "type", "title", "collapsed", "gridPos", "panels"}
COLUMNS = 24


def layout_problems(panels: list[Any]) -> list[str]:
    """Panels that overlap or exceed the edge, are in a different order than displayed, or lack a field."""
    problems: list[str] = []
    taken: dict[tuple[int, int], str] = {}
    last = (-1, -1)
    for panel in panels:
        title, at = panel["title"], panel["gridPos"]
        if panel.keys() != (ROW if panel["type"] == "row" else PANEL):
            problems.append(f"{title} has other fields than a panel has: {sorted(panel)}")
        if at["x"] < 0 or at["x"] + at["w"] > COLUMNS or at["w"] < 1 or at["h"] < 1:
            problems.append(f"{title} is beyond the edge")
        if (at["y"], at["x"]) <= last:
            problems.append(f"{title} stands before what it comes after")
        last = at["y"], at["x"]
        cells = [(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]
        problems += {f"{title} lies on {taken[cell]}" for cell in cells if cell in taken}
        taken.update(dict.fromkeys(cells, title))
        names = [target["refId"] for target in panel.get("targets", ())]
        if len(names) != len(set(names)) or (panel["type"] != "row" and not names):
            problems.append(f"{title} has no queries, or two of one name")
    if len({panel["id"] for panel in panels}) != len(panels):
        problems.append("two panels have one id")
    for y in range(max(y for _, y in taken)):
        if not any((x, y) in taken for x in range(COLUMNS)):
            problems.append(f"nothing is at height {y}")
    return problems


def panels() -> list[Any]:
    return json.loads((FILES / "dashboard.json").read_text())["panels"]


def test_panels_do_not_overlap() -> None:
    assert layout_problems(panels()) == []


@pytest.mark.parametrize(
    ("index", "place"),
    [(2, {"x": 0}), (2, {"w": 5}), (2, {"h": 5}), (6, {"x": 22}), (2, {"y": 0}), (-1, {"y": 999}), (4, {"w": 0})],
)
def test_a_panel_out_of_place_is_found(index: int, place: dict[str, int]) -> None:
    moved = panels()
    moved[index]["gridPos"].update(place)
    assert layout_problems(moved)


@pytest.mark.parametrize("field", ["datasource", "targets", "fieldConfig"])
def test_a_panel_with_a_missing_field_is_reported(field: str) -> None:
    bare = panels()
    del bare[2][field]
    assert layout_problems(bare)


def test_panels_with_the_same_id_are_reported() -> None:
    twice = panels()
    twice[2]["id"] = twice[3]["id"]
    assert layout_problems(twice) == ["two panels have one id"]


def test_rules_refer_to_existing_events_and_headings() -> None:
    rules: Any = yaml.safe_load((FILES / "alerts.yaml").read_text())
    guides = "".join(page.read_text() for page in (FILES.parents[1] / "docs/guides").glob("*.md"))
    headings = set(re.findall(r"^## (.+)$", guides, re.MULTILINE))
    names = {event.name for event in EVENTS}
    pointers = [
        pointer
        for rule in rules["groups"][0]["rules"]
        for pointer in re.findall(r"\(([A-Za-z_ ]+)\)\.", rule["annotations"]["description"])
    ]
    assert len(pointers) > 10
    assert [pointer for pointer in pointers if pointer not in headings | names] == []


def test_every_alert_rule_has_a_summary_a_description_and_a_severity() -> None:
    rules: Any = yaml.safe_load((FILES / "alerts.yaml").read_text())
    for rule in rules["groups"][0]["rules"]:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["annotations"]["description"].endswith(".")
