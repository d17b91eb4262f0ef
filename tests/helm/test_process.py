"""The rendered chart run as processes: the broker starts, serves, passes its test, drains, and keeps its data."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from tests.support.certificate import certificate
from tests.support.chart import CHART, Document, Helm, find, pods, settings
from tests.support.pod_process import BrokerPod, Pod, contents

#: Preallocating log files of the usual size would take most of a test's time.
SMALL = (
    "settings.TOPICS_WAL_FILE_BYTES=1048576",
    "settings.TOPICS_WAL_RESERVE_BYTES=65536",
    "settings.TOPICS_WAL_SHARDS=2",
)
LOOK_AGAIN_S = 0.02


def options(*values: str) -> list[str]:
    return [option for value in (*SMALL, *values) for option in ("--set", value)]


@pytest.fixture
def usual(helm: Helm) -> Sequence[Document]:
    """The chart with its defaults, and a place for backups."""
    return helm.render(*options("backup.existingClaim=backups", "backup.schedule=@daily"))


@pytest.fixture
def broker(usual: Sequence[Document], tmp_path: Path) -> Iterator[BrokerPod]:
    with BrokerPod(usual, pods(usual)["StatefulSet"], tmp_path) as pod:
        yield pod


def keys(documents: Sequence[Document]) -> dict[str, str]:
    secret = find(documents, "Secret")["metadata"]["name"]
    return {name: value.decode() for name, value in contents(documents, "Secret", secret).items()}


def client(documents: Sequence[Document], kind: str, broker: BrokerPod, folder: Path) -> Any:
    """Runs a client pod against that broker."""
    folder.mkdir()
    return Pod(documents, pods(documents)[kind], folder).run(TOPICS_URL=broker.url)


def test_the_broker_starts_passes_the_test_of_the_chart_drains_and_restarts(
    usual: Sequence[Document], broker: BrokerPod, tmp_path: Path
) -> None:
    broker.start()
    assert broker.passes("livenessProbe")
    key = keys(usual)["admin-key"]
    assert broker.call("PUT", "/v0/topics/kept", {"durability": "fsync"}, key=key)[0] == 201
    assert broker.call("POST", "/v0/topics/kept", {"records": [{"data": {"n": 1}}]}, key=key)[0] == 200

    done = client(usual, "Pod", broker, tmp_path / "test")
    assert done.returncode == 0, done.stdout
    assert "Appended 3 records" in done.stdout
    assert [each["topic"] for each in broker.call("GET", "/v0/topics", key=key)[1]["topics"]] == ["kept"]

    began = time.monotonic()
    broker.terminate()
    while broker.passes("readinessProbe"):
        time.sleep(LOOK_AGAIN_S)
    # Not ready, but alive: clients that have not noticed the drain yet are still served.
    assert broker.passes("livenessProbe")
    assert broker.call("POST", "/v0/topics/kept", {"records": [{"data": {"n": 2}}]}, key=key)[0] == 200
    grace_s = pods(usual)["StatefulSet"]["spec"]["terminationGracePeriodSeconds"]
    assert broker.ended(grace_s) == 0
    assert time.monotonic() - began >= int(settings(usual)["TOPICS_DRAIN_MS"]) / 1000

    broker.start()
    answer = broker.call("POST", "/v0/topics/kept/diff", {"from_seq": 0}, key=key)[1]
    assert [record["data"] for record in answer["records"]] == [{"n": 1}, {"n": 2}]
    assert answer["tombstone"] is None
    # The root file system of the container is read-only: only volumes may be written.
    assert [*(tmp_path / "image").iterdir()] == []
    for line in broker.log().splitlines():
        assert json.loads(line)["level"] in ("info", "warning"), line


def test_a_set_of_cells_starts_passes_the_test_of_the_chart_and_keeps_its_data(helm: Helm, tmp_path: Path) -> None:
    backups = ("backup.existingClaim=backups", "backup.schedule=@daily")
    documents = helm.render(*options("cells=2", "settings.TOPICS_WAL_SHARDS=1", "drainMs=0", *backups))
    key = keys(documents)["admin-key"]
    with BrokerPod(documents, pods(documents)["StatefulSet"], tmp_path) as broker:
        broker.start()
        assert len(broker.call("GET", "/v0/cluster", key=key)[1]["cells"]) == 2
        for number in range(4):
            append = {"records": [{"data": number}]}
            assert broker.call("POST", f"/v0/topics/kept-{number}", append, key=key)[0] == 201
        done = client(documents, "Pod", broker, tmp_path / "test")
        assert done.returncode == 0, done.stdout
        done = client(documents, "CronJob backup", broker, tmp_path / "job")
        assert done.returncode == 0, done.stdout
        assert sorted(each.name for each in (tmp_path / "backups/scheduled").iterdir()) == ["cell-00", "cell-01"]
        broker.terminate()
        assert broker.ended(pods(documents)["StatefulSet"]["spec"]["terminationGracePeriodSeconds"]) == 0
        broker.start()
        for number in range(4):
            answer = broker.call("POST", f"/v0/topics/kept-{number}/diff", {"from_seq": 0}, key=key)[1]
            assert [record["data"] for record in answer["records"]] == [number]
        # The root file system of the container is read-only: only volumes may be written.
        assert [*(tmp_path / "image").iterdir()] == []


def test_each_generated_key_has_exactly_its_scopes(usual: Sequence[Document], broker: BrokerPod) -> None:
    broker.start()
    found = keys(usual)
    append = ("POST", "/v0/topics/t", {"records": [{"data": 1}]})
    assert broker.call(*append)[0] == 401
    assert broker.call(*append, key=found["metrics-key"])[0] == 403
    assert broker.call(*append, key=found["admin-key"])[0] == 201
    status, text = broker.call("GET", "/v0/metrics", key=found["metrics-key"])
    assert status == 200
    assert "topics_ready 1" in text


def test_the_backup_job_makes_a_backup(usual: Sequence[Document], broker: BrokerPod, tmp_path: Path) -> None:
    broker.start()
    key = keys(usual)["admin-key"]
    assert broker.call("POST", "/v0/topics/t", {"records": [{"data": 1}]}, key=key)[0] == 201
    done = client(usual, "CronJob backup", broker, tmp_path / "job")
    assert done.returncode == 0, done.stdout
    assert [*(tmp_path / "backups/scheduled").iterdir()]


def test_the_export_job_exports(helm: Helm, tmp_path: Path) -> None:
    """Uses the engine without Java, which test machines may lack; the command is that of the image."""
    wanted = ("export.schedule=@daily", "export.existingClaim=lake", "export.to=/export/files")
    documents = helm.render(*options(*wanted, "export.options={--engine=arrow}"))
    records = {"records": [{"data": {"n": n}} for n in range(3)]}
    with BrokerPod(documents, pods(documents)["StatefulSet"], tmp_path / "broker") as broker:
        broker.start()
        assert broker.call("POST", "/v0/topics/t", records, key=keys(documents)["admin-key"])[0] == 201
        for _ in range(2):  # the second has nothing left to do
            done = Pod(documents, pods(documents)["CronJob export"], tmp_path / "job").run(TOPICS_URL=broker.url)
            assert done.returncode == 0, done.stdout
    [file] = (tmp_path / "job/lake/files").rglob("*.parquet")
    assert parquet.read_table(file).num_rows == 3


def test_a_kill_loses_no_synced_record(usual: Sequence[Document], broker: BrokerPod) -> None:
    broker.start()
    key = keys(usual)["admin-key"]
    assert broker.call("PUT", "/v0/topics/t", {"durability": "fsync"}, key=key)[0] == 201
    assert broker.call("POST", "/v0/topics/t", {"records": [{"data": 1}]}, key=key)[0] == 200
    broker.kill()
    broker.start()
    assert len(broker.call("POST", "/v0/topics/t/diff", {}, key=key)[1]["records"]) == 1


def secret(name: str, **data: bytes) -> Document:
    encoded = {key.replace("_", "."): base64.b64encode(value).decode() for key, value in data.items()}
    return {"kind": "Secret", "metadata": {"name": name}, "data": encoded}


def test_the_broker_serves_tls_with_an_existing_secret(helm: Helm, tmp_path: Path) -> None:
    chain, private = certificate(tmp_path)
    documents = [
        *helm.render(*options(), "-f", str(CHART / "ci/tls-values.yaml")),
        secret("broker-keys", list=b"all-of-it,just-looking:read", everything=b"all-of-it", reading=b"just-looking"),
        secret("broker-tls", tls_crt=chain.read_bytes(), tls_key=private.read_bytes(), ca_crt=chain.read_bytes()),
    ]
    with BrokerPod(documents, pods(documents)["StatefulSet"], tmp_path) as broker:
        broker.start()
        assert broker.url.startswith("https:")
        done = client(documents, "Pod", broker, tmp_path / "test")
        assert done.returncode == 0, done.stdout
        # The certificate is checked: without its authority there is no connection.
        alone = Pod(documents, pods(documents)["Pod"], tmp_path / "test").run(TOPICS_URL=broker.url, SSL_CERT_FILE="")
        assert alone.returncode != 0
        assert "CERTIFICATE_VERIFY_FAILED" in alone.stdout


def test_the_test_of_the_chart_fails_without_a_valid_key(
    usual: Sequence[Document], broker: BrokerPod, tmp_path: Path
) -> None:
    broker.start()
    test = Pod(usual, pods(usual)["Pod"], tmp_path / "test")
    refused = test.run(TOPICS_URL=broker.url, TOPICS_TOKEN="another")
    assert (refused.returncode, "401" in refused.stdout) == (1, True)
    read_only = test.run(TOPICS_URL=broker.url, TOPICS_TOKEN=keys(usual)["metrics-key"])
    assert (read_only.returncode, "403" in read_only.stdout) == (1, True)
    broker.kill()
    gone = test.run(TOPICS_URL=broker.url)
    assert (gone.returncode, "refused" in gone.stdout) == (1, True)


def test_open_values_start_without_keys(helm: Helm, tmp_path: Path) -> None:
    documents = helm.render("-f", str(CHART / "ci/open-values.yaml"), *options())
    with BrokerPod(documents, pods(documents)["StatefulSet"], tmp_path) as broker:
        broker.start()
        done = client(documents, "Pod", broker, tmp_path / "test")
        assert done.returncode == 0, done.stdout
