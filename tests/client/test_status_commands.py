"""`topics status` and `topics list`: what an operator asks first."""

from __future__ import annotations

import json
from collections.abc import Callable

from click.testing import CliRunner, Result

from tests.client.fake_broker import FakeBroker, refused
from tests.client.real_broker import RealBroker
from topics_client import Client
from topics_client.cli import app
from topics_client.commands.status import FIGURES, summed
from topics_client.commands.terminal import ExitCode

Topics = Callable[..., Result]


def test_status_prints_version_and_figures_of_a_ready_broker(
    topics: Topics, client: Client, broker: RealBroker
) -> None:
    client.put_topic("q", type="queue")
    client.append("q", [1, 2])
    client.claim("q", "w")
    shown = dict(line.split(maxsplit=1) for line in topics("status").stdout.splitlines()[1:])
    health = client.health()
    assert shown["status"] == "ready"
    assert shown["version"] == f"{health.version}, kernel {health.kernel}"
    assert shown["jobs"] == "1 ready, 1 in flight, 0 delayed"
    assert shown["holds"].startswith("1 topic, ")
    assert "normal" in shown["pressure"]
    status = json.loads(topics("status", "--json").stdout)
    assert (status["url"], status["ready"], status["cluster_id"]) == (broker.url, True, health.cluster_id)
    assert (status["figures"]["jobs_ready"], status["figures"]["topics"]) == (1, 1)
    assert status["figures"].keys() == FIGURES.keys()


def test_each_figure_is_a_metric_of_the_broker(client: Client) -> None:
    client.put_topic("q", type="queue")
    exposed = {line.split()[0].partition("{")[0] for line in client.metrics().splitlines()}
    assert set(FIGURES.values()) <= exposed


def test_figures_are_summed_over_labels() -> None:
    text = [
        "# HELP topics_wal_full x",
        'topics_wal_full{shard="0"} 1',
        'topics_wal_full{shard="1"} 1',
        "topics_topics 7",
    ]
    assert summed(text) == dict.fromkeys(FIGURES, 0.0) | {"log_shards_full": 2.0, "topics": 7.0}


def test_an_unready_broker_is_exit_status_3_with_the_reason(fake: FakeBroker, fake_url: str) -> None:
    trouble = refused(503, "not_ready", detail={"replay_progress": 0.5})
    fake.troubles.extend([None, trouble])
    result = CliRunner().invoke(app, ["status", "--url", fake_url])
    assert result.exit_code == ExitCode.UNREACHABLE
    assert "not ready: " in result.stdout
    fake.troubles.extend([None, trouble])
    result = CliRunner().invoke(app, ["status", "--url", fake_url, "--json"])
    assert result.exit_code == ExitCode.UNREACHABLE
    status = json.loads(result.stdout)
    assert (status["ready"], status["reason"]["detail"]["replay_progress"]) == (False, 0.5)


def test_a_key_without_access_to_metrics_sees_the_rest(fake: FakeBroker, fake_url: str) -> None:
    fake.troubles.extend([None, None, refused(403, "forbidden")])
    result = CliRunner().invoke(app, ["status", "--url", fake_url, "--json"])
    assert result.exit_code == 0
    assert "figures" not in json.loads(result.stdout)
    assert "No figures" in result.stderr


def test_lists_show_partitions_and_jobs(topics: Topics, client: Client) -> None:
    client.put_topic("clicks", partitions=3)
    client.put_topic("jobs", type="queue")
    client.append("jobs", [1, 2])
    client.put_topic("none", type="queue")
    client.pause("none")
    _, clicks, jobs, none = [line.split() for line in topics("list").stdout.splitlines()]
    assert (clicks[2], clicks[-2:]) == ("3", ["-", "-"])
    assert (jobs[2], jobs[-3], jobs[-1]) == ("1", "2", "s")
    assert none[-3:] == ["0", "paused", "-"]
    listed = [json.loads(line) for line in topics("list", "--json").stdout.splitlines()]
    assert (listed[0]["partitions"], listed[0]["queue"]) == (3, None)
    assert listed[1]["queue"]["ready"] == 2
