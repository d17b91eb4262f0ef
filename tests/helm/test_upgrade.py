"""An upgrade keeps the generated keys and the bucket: the chart looks up what is installed."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.chart import CHART, PACKAGES, Document, Helm, find
from tests.support.fake_cluster import FakeCluster

NAMESPACE, RELEASE = "somewhere", "release"


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as found:
        yield found


def run(helm: Helm, cluster: FakeCluster, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Render as with a cluster that can be asked."""
    where = ("--kubeconfig", str(cluster.kubeconfig(folder)), "--namespace", NAMESPACE)
    how = ("--dry-run=server", "--disable-openapi-validation")
    return helm.run("template", RELEASE, str(CHART), *where, *how, *options)


def rendered(helm: Helm, cluster: FakeCluster, folder: Path, *options: str) -> list[Document]:
    done = run(helm, cluster, folder, *options)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def secret(helm: Helm, cluster: FakeCluster, folder: Path, *options: str, suffix: str = "-keys") -> Document:
    return find(rendered(helm, cluster, folder, *options), "Secret", suffix)


def install(cluster: FakeCluster, made: Document) -> None:
    """As Helm does it, which notes the owner."""
    owner = {"meta.helm.sh/release-name": RELEASE, "meta.helm.sh/release-namespace": NAMESPACE}
    installed = made | {"metadata": made["metadata"] | {"namespace": NAMESPACE, "annotations": owner}}
    objects = cluster.secrets if made["kind"] == "Secret" else cluster.stateful_sets
    objects[NAMESPACE, made["metadata"]["name"]] = installed


@pytest.mark.parametrize("version", PACKAGES)
def test_an_upgrade_keeps_the_keys(helms: dict[str, Helm], version: str, cluster: FakeCluster, tmp_path: Path) -> None:
    first = secret(helms[version], cluster, tmp_path)
    install(cluster, first)
    assert secret(helms[version], cluster, tmp_path)["data"] == first["data"]


@pytest.mark.parametrize("version", PACKAGES)
def test_a_missing_key_is_made_and_an_existing_key_kept(
    helms: dict[str, Helm], version: str, cluster: FakeCluster, tmp_path: Path
) -> None:
    first = secret(helms[version], cluster, tmp_path)
    install(cluster, first | {"data": {"admin-key": first["data"]["admin-key"]}})
    second = secret(helms[version], cluster, tmp_path)
    assert second["data"]["admin-key"] == first["data"]["admin-key"]
    assert second["data"]["metrics-key"] != first["data"]["metrics-key"]


BUCKET = ("--set", "store.bucket=s3://bucket/prefix")


@pytest.mark.parametrize("version", PACKAGES)
def test_an_upgrade_keeps_the_secret_of_the_cluster(
    helms: dict[str, Helm], version: str, cluster: FakeCluster, tmp_path: Path
) -> None:
    first = secret(helms[version], cluster, tmp_path, *BUCKET, suffix="-cluster")
    assert len(base64.b64decode(first["data"]["cluster-secret"])) >= 32
    install(cluster, first)
    assert secret(helms[version], cluster, tmp_path, *BUCKET, suffix="-cluster")["data"] == first["data"]


@pytest.mark.parametrize("version", PACKAGES)
def test_an_upgrade_to_another_bucket_is_refused(
    helms: dict[str, Helm], version: str, cluster: FakeCluster, tmp_path: Path
) -> None:
    """It would make another cluster, without the data, node by node. If the chart cannot look, Kubernetes refuses."""
    helm, other = helms[version], ("--set", "store.bucket=s3://bucket/prefx")
    first = find(rendered(helm, cluster, tmp_path, *BUCKET), "StatefulSet")
    install(cluster, first)
    again = find(rendered(helm, cluster, tmp_path, *BUCKET, "--set", "replicaCount=5"), "StatefulSet")
    assert again["spec"]["selector"] == first["spec"]["selector"]
    for options in (other, ()):
        done = run(helm, cluster, tmp_path, *options)
        assert done.returncode != 0
        assert "runs with another store.bucket (or without one)" in done.stderr
    moved = find(helm.render(*other), "StatefulSet")
    # A selector never changes.
    assert moved["spec"]["selector"] != first["spec"]["selector"]
