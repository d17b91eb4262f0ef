"""Values that operators know from other charts reach the objects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.chart import CHART, Document, Helm, container, find, pods

pytestmark = pytest.mark.fast

BUCKET = "store.bucket=s3://bucket/prefix"
EXPORT = ("export.schedule=@daily", "export.to=s3://lake/topics")
BACKUP = ("backup.existingClaim=backups", "backup.schedule=@daily")


def rendered(helm: Helm, tmp_path: Path, values: dict[str, Any], *settings: str) -> Sequence[Document]:
    """With values from a file, and some by --set."""
    path = tmp_path / f"{len([*tmp_path.iterdir()])}.json"  # the same options are rendered only once
    path.write_text(json.dumps(values))
    return helm.render("-f", str(path), *[part for each in settings for part in ("--set", each)])


def images(found: Any) -> Iterator[str]:
    if isinstance(found, dict):
        if isinstance(found.get("image"), str):
            yield found["image"]
        for each in found.values():
            yield from images(each)
    elif isinstance(found, list):
        for each in found:
            yield from images(each)


def test_a_parent_chart_chooses_the_registry_of_every_image(helm: Helm) -> None:
    options = [
        part for each in (*EXPORT, BUCKET, "global.imageRegistry=mirror.example.com:5000") for part in ("--set", each)
    ]
    found = {image.rpartition(":")[0] for image in images(list(helm.render(*options)))}
    assert found == {"mirror.example.com:5000/topics-broker", "mirror.example.com:5000/topics-exporter"}
    own = helm.render("--set", "image.registry=registry.example.com/team")
    assert container(pods(own)["StatefulSet"])["image"].startswith("registry.example.com/team/topics-broker:")


@pytest.mark.parametrize(
    ("repository", "mirrored"),
    [
        ("registry.example.com/team/topics", "mirror/team/topics"),
        ("registry:5000/topics", "mirror/topics"),
        ("localhost/topics", "mirror/topics"),
        ("team/topics", "mirror/team/topics"),
    ],
)
def test_the_registry_of_a_parent_chart_replaces_the_one_in_the_name(
    helm: Helm, repository: str, mirrored: str
) -> None:
    names = [part for name in ("image", "export.image") for part in ("--set", f"{name}.repository={repository}")]
    usual = [part for each in (*EXPORT, BUCKET) for part in ("--set", each)]
    found = images(list(helm.render(*usual, *names, "--set", "global.imageRegistry=mirror")))
    assert {image.rpartition(":")[0] for image in found} == {mirrored}
    assert {image.rpartition(":")[0] for image in images(list(helm.render(*usual, *names)))} == {repository}


def test_every_pod_has_the_pull_secrets_of_the_chart_and_of_its_parent(helm: Helm, tmp_path: Path) -> None:
    given = {"image": {"pullSecrets": ["ours"]}, "global": {"imagePullSecrets": ["text", {"name": "object"}, "ours"]}}
    found = pods(rendered(helm, tmp_path, given, *EXPORT, *BACKUP))
    assert set(found) == {"StatefulSet", "CronJob backup", "CronJob export", "Pod"}
    for kind, pod in found.items():
        assert [each["name"] for each in pod["spec"]["imagePullSecrets"]] == ["text", "object", "ours"], kind


def test_common_labels_are_on_every_object_and_pod_but_not_in_selectors(helm: Helm, tmp_path: Path) -> None:
    given = {"commonLabels": {"team": "data"}, "podLabels": {"team": "brokers"}}
    documents = rendered(helm, tmp_path, given, *EXPORT, *BACKUP, "metrics.prometheusRule.enabled=true")
    for document in documents:
        assert document["metadata"]["labels"]["team"] == "data", document["kind"]
    for kind, pod in pods(documents).items():
        assert pod["metadata"]["labels"]["team"] == ("brokers" if kind == "StatefulSet" else "data")
    assert "team" not in json.dumps(find(documents, "StatefulSet")["spec"]["selector"])
    assert "team" not in json.dumps(find(documents, "StatefulSet")["spec"]["volumeClaimTemplates"])


def test_the_jobs_that_are_made_have_the_labels_of_their_cron_jobs(helm: Helm, tmp_path: Path) -> None:
    compacting = "export.compact.schedule=@daily"
    documents = rendered(helm, tmp_path, {"commonLabels": {"team": "data"}}, *EXPORT, *BACKUP, compacting)
    made = [each for each in documents if each["kind"] == "CronJob"]
    assert len(made) == 3
    for each in made:
        assert each["spec"]["jobTemplate"]["metadata"]["labels"] == each["metadata"]["labels"]


class OnceOnly(yaml.SafeLoader):
    """As GitOps tools read it: a key that comes twice in a mapping is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [str(key.value) for key, _ in node.value]
        assert len(names) == len(set(names)), names
        return super().construct_mapping(node, deep)


def test_a_label_of_all_objects_may_differ_for_one(helm: Helm) -> None:
    """Prometheus and Grafana may look for a label that the other objects have another value of."""
    kinds = {"serviceMonitor": "ServiceMonitor", "prometheusRule": "PrometheusRule", "dashboard": "ConfigMap"}
    options = ["--set", "commonLabels.release=all"]
    for name in kinds:
        options += ["--set", f"metrics.{name}.enabled=true", "--set", f"metrics.{name}.labels.release=one"]
    done = helm.run("template", "release", str(CHART), *options)
    documents = [each for each in yaml.load_all(done.stdout, OnceOnly) if each]
    for kind in kinds.values():
        labels = find(documents, kind, "-dashboard" if kind == "ConfigMap" else "")["metadata"]["labels"]
        assert labels["release"] == "one"
        assert labels["app.kubernetes.io/instance"] == "release"
    assert find(documents, "StatefulSet")["metadata"]["labels"]["release"] == "all"


@pytest.mark.parametrize(
    "name", ["app.kubernetes.io/name", "app.kubernetes.io/component", "helm.sh/chart", "topics-broker/store"]
)
def test_labels_that_the_chart_selects_by_are_refused(helm: Helm, tmp_path: Path, name: str) -> None:
    path = tmp_path / "values.json"
    for values in ("commonLabels", "podLabels"):
        path.write_text(json.dumps({values: {name: "other"}}))
        assert name in helm.refused("-f", str(path))


#: Parts of Kubernetes objects that are passed on: the value, and where it is in the StatefulSet.
PASSED: list[tuple[str, Any, tuple[str, ...]]] = [
    ("updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}, ("spec", "updateStrategy")),
    (
        "topologySpreadConstraints",
        [{"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}],
        ("spec", "template", "spec", "topologySpreadConstraints"),
    ),
    ("lifecycle", {"preStop": {"exec": {"command": ["sleep", "1"]}}}, ("broker", "lifecycle")),
]


@pytest.mark.parametrize(("name", "value", "place"), PASSED, ids=[name for name, _, _ in PASSED])
def test_parts_of_kubernetes_objects_are_passed_on(
    helm: Helm, tmp_path: Path, name: str, value: Any, place: tuple[str, ...]
) -> None:
    found = find(rendered(helm, tmp_path, {name: value}), "StatefulSet")
    for part in place:
        found = container(found["spec"]["template"]) if part == "broker" else found[part]
    assert found == value


@pytest.mark.parametrize("given", [{"type": "OnDelete"}, {"type": "OnDelete", "rollingUpdate": {"partition": 1}}])
def test_an_upgrade_may_change_to_replacing_pods_by_hand(helm: Helm, tmp_path: Path, given: dict[str, Any]) -> None:
    """Kubernetes would fill in a partition, and refuse it beside OnDelete. A patch takes it away if it is null, and an
    object that is applied on the server, if Helm had written it."""
    found = find(rendered(helm, tmp_path, {"updateStrategy": given}), "StatefulSet")["spec"]
    assert found["updateStrategy"] == {"type": "OnDelete", "rollingUpdate": None}
    before = find(helm.render(), "StatefulSet")["spec"]["updateStrategy"]
    assert before == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    slower = {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 1}}}
    found = find(rendered(helm, tmp_path, slower), "StatefulSet")["spec"]["updateStrategy"]
    assert found == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "partition": 0}}


@pytest.mark.parametrize("name", ["startupProbe", "livenessProbe", "readinessProbe"])
def test_each_number_of_a_probe_can_be_set(helm: Helm, tmp_path: Path, name: str) -> None:
    numbers = {"periodSeconds": 7, "timeoutSeconds": 6, "failureThreshold": 5, "initialDelaySeconds": 4}
    found = container(pods(rendered(helm, tmp_path, {name: numbers}))["StatefulSet"])[name]
    assert {number: found[number] for number in numbers} == numbers
    assert "httpGet" in found


@pytest.mark.parametrize("name", ["startupProbe", "livenessProbe", "readinessProbe"])
def test_a_probe_can_be_left_out(helm: Helm, name: str) -> None:
    found = container(pods(helm.render("--set", f"{name}=null"))["StatefulSet"])
    assert {each for each in found if each.endswith("Probe")} == {"startupProbe", "livenessProbe", "readinessProbe"} - {
        name
    }


@pytest.mark.parametrize(
    "name",
    [
        "commonLabels", "podLabels", "metrics.serviceMonitor.labels", "image.pullSecrets", "updateStrategy",
        "lifecycle", "podSecurityContext", "topologySpreadConstraints", "initContainers", "extraContainers",
        "extraObjects", "metrics.serviceMonitor.relabelings", "export.nodeSelector", "global.imageRegistry",
    ],
)  # fmt: skip
def test_a_value_may_be_null(helm: Helm, name: str) -> None:
    """A parent chart takes a default away so."""
    options = (*EXPORT, "metrics.serviceMonitor.enabled=true", f"{name}=null")
    assert helm.render(*[part for each in options for part in ("--set", each)])


def test_a_cluster_that_chooses_the_user_gets_a_pod_without_one(helm: Helm) -> None:
    nothing = [f"podSecurityContext.{name}=null" for name in ("runAsUser", "runAsGroup", "fsGroup")]
    documents = helm.render(*[part for each in (*nothing, *EXPORT) for part in ("--set", each)])
    for pod in pods(documents).values():
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & pod["spec"]["securityContext"].keys()
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True


def test_containers_of_the_user_are_before_and_beside_the_broker(helm: Helm, tmp_path: Path) -> None:
    given = {
        "initContainers": [{"name": "first", "image": "a"}],
        "extraContainers": [{"name": "beside", "image": "b"}],
    }
    spec = pods(rendered(helm, tmp_path, given))["StatefulSet"]["spec"]
    assert [each["name"] for each in spec["initContainers"]] == ["first"]
    assert [each["name"] for each in spec["containers"]] == ["broker", "beside"]
    spec = pods(rendered(helm, tmp_path, given, BUCKET))["StatefulSet"]["spec"]
    assert [each["name"] for each in spec["initContainers"]] == ["cluster-init", "first"]


def test_more_objects_are_rendered_as_objects_and_as_templates(helm: Helm, tmp_path: Path) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: '{{ .Release.Name }}-text'\n"
    named = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-object"}}
    found = {each["metadata"]["name"] for each in rendered(helm, tmp_path, {"extraObjects": [text, named]})}
    assert {"release-text", "release-object"} <= found


def test_claims_have_the_access_modes(helm: Helm) -> None:
    [usual] = find(helm.render(), "StatefulSet")["spec"]["volumeClaimTemplates"]
    assert usual["spec"]["accessModes"] == ["ReadWriteOnce"]
    options = ("--set", "persistence.accessModes={ReadWriteOncePod}")
    [other] = find(helm.render(*options), "StatefulSet")["spec"]["volumeClaimTemplates"]
    assert other["spec"]["accessModes"] == ["ReadWriteOncePod"]


def test_an_http_route_leads_to_the_service_and_ends_no_stream(helm: Helm) -> None:
    documents = helm.render("-f", str(CHART / "ci/cluster-values.yaml"))
    route = find(documents, "HTTPRoute")["spec"]
    [rule] = route["rules"]
    [backend] = rule["backendRefs"]
    [service] = [
        each for each in documents if each["kind"] == "Service" and each["metadata"]["name"] == backend["name"]
    ]
    assert backend["port"] in [port["port"] for port in service["spec"]["ports"] if port["name"] == "http"]
    assert rule["timeouts"] == {"request": "0s"}
    assert route["parentRefs"] == [{"name": "public", "namespace": "gateways"}]
    assert route["hostnames"] == ["topics.example.com"]


def test_a_broker_without_keys_answers_to_the_names_of_its_route(helm: Helm, tmp_path: Path) -> None:
    route = {"enabled": True, "parentRefs": [{"name": "g"}], "hostnames": ["t.example.com"], "allowWithoutAuth": True}
    documents = rendered(helm, tmp_path, {"httpRoute": route, "auth": {"enabled": False}})
    assert "t.example.com" in find(documents, "ConfigMap")["data"]["TOPICS_ALLOWED_HOSTS"].split(",")


def test_a_certificate_of_cert_manager_is_the_one_that_is_served(helm: Helm, tmp_path: Path) -> None:
    given = {
        "tls": {"enabled": True},
        "certificate": {"enabled": True, "issuerRef": {"name": "i"}, "duration": "2160h", "renewBefore": "360h"},
        "metrics": {"serviceMonitor": {"enabled": True}},
    }
    documents = rendered(helm, tmp_path, given, *BACKUP)
    made = find(documents, "Certificate")["spec"]
    assert (made["duration"], made["renewBefore"]) == ("2160h", "360h")
    assert made["issuerRef"] == {"name": "i", "kind": "Issuer", "group": "cert-manager.io"}
    for kind, pod in pods(documents).items():
        secrets = [each["secret"]["secretName"] for each in pod["spec"]["volumes"] if each["name"] in ("tls", "ca")]
        assert secrets == [made["secretName"]], kind
    [endpoint] = find(documents, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["tlsConfig"]["ca"]["secret"]["name"] == made["secretName"]
    assert endpoint["tlsConfig"]["serverName"] in made["dnsNames"]
    other = rendered(helm, tmp_path, given | {"tls": {"enabled": True, "existingSecret": "mine"}})
    assert find(other, "Certificate")["spec"]["secretName"] == "mine"


def test_targets_and_metrics_can_be_relabelled(helm: Helm, tmp_path: Path) -> None:
    rules = {"relabelings": [{"targetLabel": "a"}], "metricRelabelings": [{"action": "drop", "regex": "x"}]}
    documents = rendered(helm, tmp_path, {"metrics": {"serviceMonitor": {"enabled": True, **rules}}})
    [endpoint] = find(documents, "ServiceMonitor")["spec"]["endpoints"]
    assert {name: endpoint[name] for name in rules} == rules


def test_exports_have_nodes_of_their_own_or_those_of_the_broker(helm: Helm, tmp_path: Path) -> None:
    broker = {"nodeSelector": {"pool": "brokers"}, "tolerations": [{"key": "brokers"}]}
    own = {"nodeSelector": {"pool": "spark"}, "tolerations": [{"key": "spark"}], "affinity": {"nodeAffinity": {}}}
    usual = pods(rendered(helm, tmp_path, broker, *EXPORT))["CronJob export"]["spec"]
    assert {name: usual[name] for name in broker} == broker
    assert "affinity" not in usual
    moved = pods(rendered(helm, tmp_path, broker | {"export": own}, *EXPORT))["CronJob export"]["spec"]
    assert {name: moved[name] for name in own} == own
