"""Every value is described and checked; contradicting values are rejected with a message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from broker.settings import PREFIX, Settings
from tests.support import chart_schema
from tests.support.chart import CHART, PACKAGES, Helm, container, pods

VALUES_FILE = CHART / "values.yaml"
#: Objects with any content: labels, annotations, parts of Kubernetes objects, amounts.
OPEN = {
    "affinity", "annotations", "commonLabels", "labels", "lifecycle", "limits", "nodeSelector", "podAnnotations",
    "podLabels", "podSecurityContext", "requests", "sparkConf", "timeouts", "updateStrategy",
}  # fmt: skip
#: Values that a parent chart passes, which has more of them than this chart uses.
FROM_OUTSIDE = {"global", "enabled"}


def defaults() -> dict[str, Any]:
    return yaml.safe_load(VALUES_FILE.read_text())


def schema() -> dict[str, Any]:
    return json.loads(chart_schema.FILE.read_text())


def objects(found: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object that a schema describes, with its path."""
    if found.get("type") == "object":
        yield path, found
        for name, inner in found.get("properties", {}).items():
            yield from objects(inner, f"{path}.{name}".removeprefix("."))


def paths(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """The paths of all values, except those below `settings` and below open objects."""
    for name, value in values.items():
        path = f"{prefix}.{name}".removeprefix(".")
        yield path
        if isinstance(value, dict) and name not in OPEN and path != "settings":
            yield from paths(value, path)


def test_the_schema_is_generated_from_the_settings() -> None:
    # python -m tests.support.chart_schema
    assert chart_schema.FILE.read_text() == chart_schema.written()


def test_every_setting_comes_from_the_user_or_the_chart() -> None:
    all_of_them = {PREFIX + name.upper() for name in Settings.model_fields}
    users = set(schema()["properties"]["settings"]["properties"])
    assert users | chart_schema.BY_THE_CHART == all_of_them
    assert not users & chart_schema.BY_THE_CHART
    assert all(
        each["type"] and each["description"] for each in schema()["properties"]["settings"]["properties"].values()
    )


def test_the_schema_has_exactly_the_existing_values() -> None:
    described = {
        f"{path}.{name}".removeprefix(".")
        for path, found in objects(schema())
        for name in found.get("properties", {})
        if path not in ("settings", "podSecurityContext", "updateStrategy") and not path.endswith("Probe")
    }
    given = {path for path in paths(defaults()) if "Probe." not in path}
    assert described - {"enabled"} == given


def test_the_schema_refuses_unknown_values() -> None:
    for path, found in objects(schema()):
        last = path.rpartition(".")[2]
        closed = found.get("additionalProperties") is False
        assert closed != (last in OPEN or path in FROM_OUTSIDE), path
        assert not closed or found["properties"], path


def test_the_defaults_fit_the_schema() -> None:
    jsonschema.Draft7Validator.check_schema(schema())
    jsonschema.validate(defaults(), schema())


def test_every_value_is_commented() -> None:
    before = ""
    for line in VALUES_FILE.read_text().splitlines():
        text = line.strip()
        if text and not text.startswith("#"):
            assert before.startswith("# "), f"{line!r} has no comment above it"
            assert before.endswith((".", ":", ",", ")")) or len(before) > 60, f"the comment above {line!r} has no end"
        before = text


#: Each is refused by the schema; Helm lists all that it finds, so one call tries them all.
WRONG = (
    "settings.TOPICS_PORT=1",
    "settings.TOPICS_TRUST_PAGE_CACHE=true",
    "settings.TOPICS_MAX_TOPICS=-1",
    "settings.TOPICS_IO_BACKEND=floppy",
    "settings.TOPICS_NO_SUCH=1",
    "service.prot=1",
    "image.digest=latest",
    "persistence.size=lots",
    "podSecurityContext.runAsUser=0",
    "store.bucket=file:///data",
    "store.cells=65",
    "readinessProbe.periodSeconds=0",
    "persistence.accessModes={Everybody}",
    "podServices.type=NodePort",
    "global.imageRegistry=https://mirror",
    "livenessProbe.successThreshold=2",
    "startupProbe.successThreshold=2",
    "updateStrategy.type=Recreate",
    "commonLabels.team=a b",
    "metrics.serviceMonitor.interval=soon",
    "cold.url=ftp://somewhere",
    "listenAddress=127.0.0.1",
    "kafka.advertised=nowhere",
    "cells=0",
    "cellPorts.advertised=nowhere",
    "settings.TOPICS_CELLS=3",
)


@pytest.mark.parametrize("version", PACKAGES)
def test_invalid_values_are_refused_with_the_path(helms: dict[str, Helm], version: str) -> None:
    said = helms[version].refused(*[option for wrong in WRONG for option in ("--set", wrong)])
    # 3.17 writes a path with dots, 4 with slashes; an unknown name is reported with its parent.
    lines = [line.replace("/", ".") for line in said.splitlines()]
    for wrong in WRONG:
        path = wrong.partition("=")[0]
        parent, _, name = path.removesuffix(".enabled").rpartition(".")
        assert any(path in line or (parent in line and name in line and "ropert" in line) for line in lines), (
            wrong,
            said,
        )


def test_each_invalid_value_is_refused_alone() -> None:
    for wrong in WRONG:
        path, _, text = wrong.partition("=")
        value: Any = yaml.safe_load(text)
        for name in reversed(path.split(".")):
            value = {name: value}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(value, schema())


BUCKET = "store.bucket=s3://bucket/prefix"


@pytest.mark.parametrize(
    ("contradiction", "sentence"),
    [
        (["replicaCount=3"], "replicaCount is 3, but store.bucket is empty: brokers with volumes do not replicate"),
        (["replicaCount=0"], "replicaCount is 0, but must be 1 or more"),
        ([BUCKET, "cells=2"], "store.cells says how many cells"),
        ([BUCKET, "replicaCount=3", "store.cells=2"], "a node without a cell has nothing to do"),
        ([BUCKET, "cold.url=s3://b/c"], "the cold tier of a cluster is its bucket"),
        ([BUCKET, "persistence.existingClaim=c"], "cannot share a volume"),
        ([BUCKET, "backup.existingClaim=c"], "backed up by copying its bucket"),
        ([BUCKET, "kafka.advertised=a:1"], "kafka.advertised is a:1 for all nodes of a cluster"),
        ([BUCKET, "cellPorts.advertised=a:1"], "cellPorts.advertised is a:1 for all nodes of a cluster"),
        ([BUCKET, "terminationGracePeriodSeconds=54"], "a node gives its cells to others, for 30 s at most; leave 50"),
        ([BUCKET, "networkPolicy.egress.restricted=true"], "store.bucket could not be reached"),
        (["podServices.enabled=true"], "podServices.enabled is set, but store.bucket is empty"),
        (["store.secretRef=keys"], "store.secretRef is set, but store.bucket is empty"),
        (["certificate.enabled=true", "certificate.issuerRef.name=i"], "tls.enabled is false"),
        (["certificate.enabled=true", "tls.enabled=true"], "certificate.issuerRef.name does not say who signs"),
        (["httpRoute.enabled=true"], "httpRoute.parentRefs names no Gateway"),
        (["httpRoute.enabled=true", "httpRoute.parentRefs[0].name=g", "auth.enabled=false"], "the Gateway could do"),
        (["auth.enabled=false", "auth.existingSecret=keys"], "auth.existingSecret is set, but auth.enabled is false"),
        (["tls.enabled=true"], "tls.existingSecret does not say which Secret"),
        (["tls.existingSecret=certificate"], "tls.enabled is false"),
        (["ingress.enabled=true"], "ingress.hosts names no host"),
        (["ingress.enabled=true", "ingress.hosts={a.b}", "auth.enabled=false"], "could do everything"),
        (["cold.url=s3://b/c", "cold.existingClaim=c"], "are both set"),
        (["cold.secretRef=credentials"], "cold.url does not name one"),
        (["persistence.enabled=false", "persistence.existingClaim=c"], "the claim would not be used"),
        (["backup.schedule=@daily"], "does not say where backups go"),
        (["export.sparkOperator.enabled=true"], "export.schedule does not say when"),
        (["export.schedule=@daily"], "does not say what is mounted at /export"),
        (["export.schedule=@daily", "export.to=/lake", "export.existingClaim=c"], "no folder of /export"),
        (["drainMs=40001"], "too short for drainMs of 40001"),
        (["terminationGracePeriodSeconds=24"], "terminationGracePeriodSeconds is 24, too short"),
        (["service.nodePort=30000"], "service.type is ClusterIP"),
        (["kafka.nodePort=30000"], "kafka.nodePort is set, but service.type is ClusterIP"),
        (["kafka.enabled=true", "kafka.port=4000"], "cannot have a port twice"),
        (["cellPorts.enabled=true"], "cellPorts.enabled is true, but cells is 1"),
        (["service.loadBalancerSourceRanges={10.0.0.0/8}"], "is not LoadBalancer"),
        (["networkPolicy.egress.rules[0].ports[0].port=443"], "everything is allowed"),
        (["networkPolicy.egress.restricted=true", "cold.url=s3://b/c"], "could not be reached"),
        (["extraEnv[0].name=TOPICS_MAX_TOPICS", "extraEnv[0].value=7"], "go to settings"),
    ],
)
def test_contradictions_are_refused_with_a_sentence(helm: Helm, contradiction: list[str], sentence: str) -> None:
    said = helm.refused(*[option for each in contradiction for option in ("--set", each)])
    assert sentence in said


def test_ports_of_cells_must_not_meet(helm: Helm) -> None:
    kafka = ("cells=3", "kafka.enabled=true", "service.port=9094")
    assert "4100" not in (said := helm.refused(*[option for each in kafka for option in ("--set", each)]))
    assert "the ports 9094, 9092, 9093, 9094: one Service" in said
    both = ("cells=3", "kafka.enabled=true", "cellPorts.enabled=true", "cellPorts.port=9090")
    assert "cannot have a port twice" in helm.refused(*[option for each in both for option in ("--set", each)])


def test_every_guard_of_the_chart_has_a_case() -> None:
    guards = (CHART / "templates/_guards.tpl").read_text().count("{{- fail ")
    [tried] = [
        mark.args[1]
        for mark in test_contradictions_are_refused_with_a_sentence.pytestmark
        if "contradiction" in mark.args[0]
    ]
    # Three refuse several values: addresses of all nodes, values of clusters alone, and the grace period (three times).
    # One needs an installed release: test_upgrade.py.
    assert len(tried) - 1 - 1 - 2 + 1 == guards


def test_an_ingress_without_keys_needs_an_explicit_permission(helm: Helm) -> None:
    options = ("ingress.enabled=true", "ingress.hosts={a.b}", "auth.enabled=false", "ingress.allowWithoutAuth=true")
    assert helm.render(*[option for each in options for option in ("--set", each)])


def test_extra_labels_annotations_and_variables_reach_the_pod(helm: Helm) -> None:
    pod = pods(helm.render("-f", str(CHART / "ci/full-values.yaml")))["StatefulSet"]
    assert container(pod)["env"] == [{"name": "AWS_REGION", "value": "eu-central-1"}]
    assert pod["metadata"]["labels"]["team"] == "data"
    assert pod["metadata"]["annotations"]["example.com/owner"] == "data"
    assert container(pod)["image"].startswith("registry.example.com/team/topics-broker@sha256:")
    assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert {"nodeAffinity"} == set(pod["spec"]["affinity"])
    assert [volume["name"] for volume in pod["spec"]["volumes"]][-1] == "certificates"


def test_an_ingress_does_not_buffer_or_end_streams(helm: Helm) -> None:
    [ingress] = [each for each in helm.render("-f", str(CHART / "ci/full-values.yaml")) if each["kind"] == "Ingress"]
    said = {name.rpartition("/")[2]: value for name, value in ingress["metadata"]["annotations"].items()}
    assert said["proxy-buffering"] == "off"
    assert int(said["proxy-read-timeout"]) >= 3600
    assert said["proxy-http-version"] == "1.1"
    largest = int(said["proxy-body-size"].removesuffix("m")) << 20
    assert largest >= Settings.model_fields["max_body_bytes"].default
