"""An upgrade keeps the generated keys: the chart looks up the installed Secret."""

from __future__ import annotations

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


def secret(helm: Helm, cluster: FakeCluster, folder: Path) -> Document:
    """Rendered as with a cluster that can be asked."""
    where = ("--kubeconfig", str(cluster.kubeconfig(folder)), "--namespace", NAMESPACE)
    how = ("--dry-run=server", "--disable-openapi-validation")
    done = helm.run("template", RELEASE, str(CHART), *where, *how)
    assert done.returncode == 0, done.stderr
    return find([document for document in yaml.safe_load_all(done.stdout) if document], "Secret")


def install(cluster: FakeCluster, made: Document) -> None:
    """As Helm does it, which notes the owner."""
    owner = {"meta.helm.sh/release-name": RELEASE, "meta.helm.sh/release-namespace": NAMESPACE}
    installed = made | {"metadata": made["metadata"] | {"namespace": NAMESPACE, "annotations": owner}}
    cluster.secrets[NAMESPACE, made["metadata"]["name"]] = installed


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
