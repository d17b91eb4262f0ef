"""After use of every feature, a broker shows exactly the declared metrics: name, type, meaning and labels."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import httpx
import pytest
from prometheus_client import Metric as Parsed
from prometheus_client.parser import text_string_to_metric_families

from broker.api.exposition import families, with_former_names
from broker.kafka.apis import ApiKey
from broker.kafka.errors import ErrorCode
from broker.settings import Settings
from broker.telemetry.metric_table import ALL
from broker.wiring import Broker
from storage import METRICS, Engine, Metric, MetricTable, Sample
from storage.errors import NotReady
from tests.http.conftest import client_of
from tests.http.everything import use_everything

KEY = "a-key-for-everything"
#: A gateway shows these: tests/gateway/test_forwarding.py, tests/gateway/test_nodes.py.
OF_A_GATEWAY = ("topics_process_restarts", "topics_cluster_")
#: A cell in a bucket shows these: tests/http/test_bucket_metrics.py.
OF_A_BUCKET = "topics_bucket_"
OF_A_BROKER = [metric for metric in ALL if not metric.name.startswith((*OF_A_GATEWAY, OF_A_BUCKET))]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", api_keys=KEY, max_watch_sessions=1)


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[httpx.AsyncClient]:
    # There is no Kafka port here that could be used.
    broker.kafka_metrics.observe(ApiKey.METADATA, 0.01, [ErrorCode.INVALID_REQUEST])
    async with client_of(broker) as client:
        client.headers["authorization"] = f"Bearer {KEY}"
        yield client


async def shown(client: httpx.AsyncClient) -> list[Parsed]:
    answer = await client.get("/v0/metrics")
    assert answer.status_code == 200
    return [*text_string_to_metric_families(answer.text)]


def differences(there: Iterable[Parsed], declared: Iterable[Metric]) -> list[str]:
    """Differences between shown and declared metrics."""
    table = {metric.name: metric for metric in declared}
    found = {family.name: family for family in there}
    problems = [f"{name} is shown, and not declared" for name in found.keys() - table.keys()]
    problems += [f"{name} is declared, and not shown" for name in table.keys() - found.keys()]
    for name in found.keys() & table.keys():
        family, metric = found[name], table[name]
        if (family.type, family.documentation) != (metric.kind, metric.help):
            problems.append(f"{name} is shown as {family.type}: {family.documentation}")
        labels = {frozenset(sample.labels) - {"le"} for sample in family.samples}
        if labels != {frozenset(metric.labels.split())}:
            problems.append(f"{name} is shown with the labels {labels}")
    return sorted(problems)


async def test_exposed_metrics_equal_the_declared_metrics(client: httpx.AsyncClient, broker: Broker) -> None:
    await use_everything(client, broker)
    assert differences(await shown(client), OF_A_BROKER) == []


async def test_any_difference_is_reported(client: httpx.AsyncClient, broker: Broker) -> None:
    await use_everything(client, broker)
    there = await shown(client)
    first, *others = OF_A_BROKER
    for declared in (
        others,
        [*OF_A_BROKER, Metric("topics_made_up", "gauge", "1", "There is none.")],
        [first._replace(kind="counter"), *others],
        [first._replace(help="Something else."), *others],
        [first._replace(labels=""), *others],
        [first._replace(labels="version colour"), *others],
    ):
        assert len(differences(there, declared)) == 1


async def test_a_broker_that_is_not_ready_exposes_only_declared_metrics(tmp_path: Path, settings: Settings) -> None:
    broker = Broker(Engine(str(tmp_path / "data")), settings)
    with pytest.raises(NotReady):
        broker.engine.check_open()
    found = {family.name for family in families(broker)}
    assert "topics_recovery_progress" in found
    assert found <= {metric.name for metric in ALL}


def test_an_undeclared_metric_cannot_be_exposed() -> None:
    with pytest.raises(KeyError):
        METRICS.whole("topics_made_up", 1)
    with pytest.raises(KeyError):
        MetricTable().family("topics_ready", [])


def test_every_declared_metric_has_a_unique_name_a_kind_a_unit_and_help() -> None:
    names = [metric.exposed for metric in ALL]
    assert len(names) == len(set(names)) > 100
    for metric in ALL:
        assert metric.name.startswith("topics_")
        assert not metric.name.endswith("_total")
        assert metric.kind in ("counter", "gauge", "histogram")
        assert metric.unit
        assert metric.help.endswith("."), metric.name


def test_a_renamed_metric_is_exposed_under_old_and_new_name() -> None:
    table = MetricTable(
        Metric("topics_flushed_files", "counter", "files", "Files flushed.", "shard", former="topics_soaked_files")
    )
    deprecated = {each.name: each.deprecated for each in table}
    samples = [Sample((("shard", "0"),), 7)]
    new, old = with_former_names([table.family("topics_flushed_files", samples)], deprecated)
    assert (old.name, old.kind, old.samples) == ("topics_soaked_files", new.kind, new.samples)
    assert old.help == "Deprecated name of topics_flushed_files_total, removed in the next release."


def test_an_unrenamed_metric_is_exposed_once() -> None:
    family = METRICS.whole("topics_topics", 1)
    assert [*with_former_names([family], {})] == [family]
