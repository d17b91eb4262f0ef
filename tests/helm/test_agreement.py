"""The objects agree with each other and with the program: ports, selectors, secrets, settings, probes."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_group

from broker import VERSION
from broker.api.app import OPERATIONS
from broker.api.openapi import document as openapi
from broker.auth.keys import parse_file
from broker.auth.scopes import EVERYTHING, READ
from broker.settings import PREFIX, Settings, is_loopback
from pipeline.cli import app as exports
from tests.support.chart import CHART, Document, Helm, container, find, pods, settings, variables

pytestmark = pytest.mark.fast

#: Variables that the command line and the chart's test read.
OF_CLIENTS = {"TOPICS_URL", "TOPICS_TOKEN"}
#: What each node of a cluster has for itself, and what must not be in a ConfigMap.
OF_NODES = {
    "TOPICS_NODE", "TOPICS_ADVERTISED", "TOPICS_CLUSTER_ADVERTISED", "TOPICS_CELL_ADVERTISED",
    "TOPICS_KAFKA_ADVERTISED", "TOPICS_CLUSTER_SECRET",
}  # fmt: skip
VARIABLES = {PREFIX + name.upper() for name in Settings.model_fields}


def named(found: Any) -> Iterator[dict[str, Any]]:
    """Every mapping in an object."""
    if isinstance(found, dict):
        yield found
        for value in found.values():
            yield from named(value)
    elif isinstance(found, list):
        for value in found:
            yield from named(value)


def broker(documents: Sequence[Document]) -> Document:
    return container(pods(documents)["StatefulSet"])


def without_pod(selector: dict[str, str]) -> dict[str, str]:
    """Without the label that Kubernetes itself gives the pods of a StatefulSet."""
    return {name: value for name, value in selector.items() if name != "statefulset.kubernetes.io/pod-name"}


def client_service(documents: Sequence[Document]) -> Document:
    services = [each for each in documents if each["kind"] == "Service"]
    [found] = [each for each in services if each["metadata"]["labels"]["app.kubernetes.io/component"] == "client"]
    return found


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


# -- settings ----------------------------------------------------------------------------------------------------------


def test_every_setting_of_the_chart_exists_and_is_valid(
    documents: Sequence[Document], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = settings(documents)
    assert set(found) <= VARIABLES
    (tmp_path / "keys").write_text("key\n")
    for name, value in found.items():
        # The file is mounted in a pod. Variables have the same values as in other pods.
        monkeypatch.setenv(name, str(tmp_path / "keys") if name == "TOPICS_API_KEYS_FILE" else value)
    of_node = variables(broker(documents), "release-0", lambda _name, _key: "0123456789abcdef" * 2)
    assert {name for name in of_node if name.startswith(PREFIX)} <= VARIABLES
    for name, value in of_node.items():
        monkeypatch.setenv(name, value)
    taken = Settings()  # pyright: ignore[reportCallIssue]
    for name, value in found.items():
        field = getattr(taken, name.removeprefix(PREFIX).lower())
        if isinstance(field, int | float) and not isinstance(field, bool):
            assert float(value) == field, name
        elif isinstance(field, str | Path):
            assert value == str(field), name


def test_no_variable_of_a_pod_is_unknown(documents: Sequence[Document]) -> None:
    for kind, pod in pods(documents).items():
        names = {each["name"] for each in container(pod).get("env", ())}
        known = OF_NODES if kind == "StatefulSet" else OF_CLIENTS
        assert {name for name in names if name.startswith(PREFIX)} <= known


def test_jobs_of_the_exporter_run_commands_that_exist(helm: Helm) -> None:
    everything = ("-f", str(CHART / "ci/full-values.yaml"), "--set", "export.compact.schedule=@daily,export.maxLag=9")
    found = pods(helm.render(*everything))
    for name in ("export", "compact"):
        command = container(found[f"CronJob {name}"])["command"]
        assert command[:4] == ["python", "-m", "topics_broker.pipeline", name]
        # An unknown option, or a value of another type, raises an error of its own.
        given = get_group(exports).commands[name].make_context(name, command[4:]).params
        assert (given["to"], given["topics"]) == ("s3://lake/topics", "orders,audit-*")


def test_the_chart_makes_the_settings_that_kubernetes_needs(documents: Sequence[Document]) -> None:
    found = settings(documents)
    # The folder of a pod stays in the page cache of its machine; a volume may be detached.
    volumes = [each for each in pods(documents)["StatefulSet"]["spec"]["volumes"] if each["name"] == "data"]
    is_cache = "TOPICS_CLUSTER_URL" in found and "emptyDir" in str(volumes)
    assert found["TOPICS_TRUST_PAGE_CACHE"] == str(int(is_cache))
    assert found["TOPICS_ON_STORAGE_FAILED"] == "exit"
    assert not is_loopback(found["TOPICS_HOST"])
    assert ("TOPICS_API_KEYS_FILE" in found) != (found.get("TOPICS_ALLOW_INSECURE_NO_AUTH") == "1")


def test_large_numbers_are_written_out(helm: Helm) -> None:
    found = settings(helm.render("-f", str(CHART / "ci/full-values.yaml")))
    assert found["TOPICS_MAX_TOTAL_BYTES"] == "10737418240"
    assert settings(helm.render("-f", str(CHART / "ci/open-values.yaml")))["TOPICS_COLD_TIMEOUT_S"] == "2.5"
    assert (
        settings(helm.render("--set", "settings.TOPICS_MAX_BODY_BYTES=67108864"))["TOPICS_MAX_BODY_BYTES"] == "67108864"
    )


def test_other_settings_make_another_pod_and_the_same_do_not(helm: Helm) -> None:
    def mark(*options: str) -> str:
        return pods(helm.render(*options))["StatefulSet"]["metadata"]["annotations"]["checksum/config"]

    assert mark() == mark("--set", "service.port=80")
    assert mark() != mark("--set", "settings.TOPICS_MAX_TOPICS=7")


def test_directories_of_the_settings_are_mounted(documents: Sequence[Document]) -> None:
    mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in broker(documents)["volumeMounts"]}
    found = settings(documents)
    written = [found[name] for name in ("TOPICS_DATA_DIR", "TOPICS_BACKUP_DIR", "TOPICS_COLD_DIR") if name in found]
    read = [found[name] for name in ("TOPICS_API_KEYS_FILE", "TOPICS_TLS_CERT", "TOPICS_TLS_KEY") if name in found]
    for path in [path for path in written if path.startswith("/")] + read:
        [mount] = [mount for mount in mounts if path == mount or path.startswith(f"{mount}/")]
        assert mounts[mount] is (path in read), path


def test_every_mount_has_a_volume(documents: Sequence[Document]) -> None:
    for kind, pod in pods(documents).items():
        volumes = {volume["name"] for volume in pod["spec"].get("volumes") or ()}
        if kind == "StatefulSet":
            claims = find(documents, "StatefulSet")["spec"].get("volumeClaimTemplates", ())
            volumes |= {claim["metadata"]["name"] for claim in claims}
        assert {mount["name"] for mount in container(pod).get("volumeMounts") or ()} == volumes, kind


def cells_of_cluster(documents: Sequence[Document]) -> int:
    """What its init container is told; 0: none is a cluster, or another pod made it."""
    for each in pods(documents)["StatefulSet"]["spec"].get("initContainers", ()):
        if each["name"] == "cluster-init":
            return int(each["command"][each["command"].index("--cells") + 1])
    return 0


# -- ports and selectors -----------------------------------------------------------------------------------------------


def test_every_port_is_the_port_of_the_broker(documents: Sequence[Document]) -> None:
    ports = broker(documents)["ports"]
    found = settings(documents)
    cells = int(found.get("TOPICS_CELLS") or cells_of_cluster(documents) or 1)
    of_cells = [int(found[name]) for name in ("TOPICS_KAFKA_PORT", "TOPICS_CELL_PORTS") if name in found]
    listens = [int(found["TOPICS_PORT"]), *(first + cell for first in of_cells for cell in range(cells))]
    among_nodes = [int(found[name]) for name in ("TOPICS_CLUSTER_PORT",) if name in found]
    assert [port["containerPort"] for port in ports] == listens + among_nodes
    names = [port["name"] for port in ports]
    services = {
        each["metadata"]["labels"]["app.kubernetes.io/component"]: [to["targetPort"] for to in each["spec"]["ports"]]
        for each in documents
        if each["kind"] == "Service"
    }
    public = [name for name in names if name != "cluster"]
    assert services.pop("pod", public) == public
    # The Service leads to any node; only the HTTP port is the same at all of them.
    assert services == {"client": ["http"] if among_nodes else public, "headless": names}
    for ingress in (each for each in documents if each["kind"] == "Ingress"):
        backends = [each["service"] for each in named(ingress) if "service" in each]
        client = client_service(documents)
        assert {each["name"] for each in backends} == {client["metadata"]["name"]}
        assert {each["port"]["name"] for each in backends} == {client["spec"]["ports"][0]["name"]}


def test_selectors_find_the_broker_and_no_other_pod(documents: Sequence[Document]) -> None:
    found = pods(documents)
    labels = {kind: pod["metadata"]["labels"] for kind, pod in found.items()}
    stateful = find(documents, "StatefulSet")["spec"]
    spread = [each["labelSelector"]["matchLabels"] for each in named(stateful["template"]) if "topologyKey" in each]
    selectors = [
        stateful["selector"]["matchLabels"],
        *[without_pod(each["spec"]["selector"]) for each in documents if each["kind"] == "Service"],
        *[each["spec"]["selector"]["matchLabels"] for each in documents if each["kind"] == "PodDisruptionBudget"],
        *[each["spec"]["podSelector"]["matchLabels"] for each in documents if each["kind"] == "NetworkPolicy"],
        *spread,
    ]
    for selector in selectors:
        assert [kind for kind in labels if selects(selector, labels[kind])] == ["StatefulSet"]


def test_names_of_brokers_come_from_the_headless_service(documents: Sequence[Document]) -> None:
    headless = find(documents, "Service", "-headless")
    assert find(documents, "StatefulSet")["spec"]["serviceName"] == headless["metadata"]["name"]
    assert headless["spec"]["clusterIP"] == "None"
    assert headless["spec"]["publishNotReadyAddresses"] is True


def test_the_policy_lets_in_clients_pods_of_the_release_and_peers(helm: Helm) -> None:
    documents = helm.render("-f", str(CHART / "ci/full-values.yaml"))
    policy = find(documents, "NetworkPolicy")["spec"]
    ports = broker(documents)["ports"]
    [clients] = policy["ingress"]
    assert [each["port"] for each in clients["ports"]] == [port["name"] for port in ports] == ["http", "kafka"]
    ours = [each["podSelector"]["matchLabels"] for each in clients["from"] if "namespaceSelector" not in each]
    for kind, pod in pods(documents).items():
        assert any(selects(selector, pod["metadata"]["labels"]) for selector in ours), kind
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert [each["port"] for each in policy["egress"][0]["ports"]] == [53, 53]


def test_only_nodes_of_a_cluster_may_connect_to_its_port(helm: Helm) -> None:
    documents = helm.render("-f", str(CHART / "ci/claimed-cluster-values.yaml"))
    policy = find(documents, "NetworkPolicy")["spec"]
    clients, nodes = policy["ingress"]
    assert "cluster" not in [each["port"] for each in clients["ports"]]
    _, to_nodes, *_ = policy["egress"]
    assert [each["port"] for each in nodes["ports"]] == [each["port"] for each in to_nodes["ports"]] == ["cluster"]
    [by] = nodes["from"]
    assert nodes["from"] == to_nodes["to"]
    labels = {kind: pod["metadata"]["labels"] for kind, pod in pods(documents).items()}
    assert [kind for kind in labels if selects(by["podSelector"]["matchLabels"], labels[kind])] == ["StatefulSet"]


def test_without_a_list_of_clients_every_pod_may_connect(default: Sequence[Document]) -> None:
    [clients] = find(default, "NetworkPolicy")["spec"]["ingress"]
    assert "from" not in clients


def test_clients_in_the_pods_call_the_service(documents: Sequence[Document]) -> None:
    service = client_service(documents)
    port = service["spec"]["ports"][0]
    scheme = "https" if "TOPICS_TLS_CERT" in settings(documents) else "http"
    for kind, pod in pods(documents).items():
        if kind != "StatefulSet":
            env = {each["name"]: each.get("value") for each in container(pod)["env"]}
            assert env["TOPICS_URL"] == f"{scheme}://{service['metadata']['name']}.somewhere.svc:{port['port']}"


def test_kafka_clients_get_the_address_of_the_service(helm: Helm) -> None:
    assert not [name for name in settings(helm.render()) if "KAFKA" in name]
    documents = helm.render("--set", "kafka.enabled=true", "--set", "kafka.port=9999")
    service = find(documents, "Service")
    port = service["spec"]["ports"][1]
    told = settings(documents)["TOPICS_KAFKA_ADVERTISED"]
    assert told == f"{service['metadata']['name']}.somewhere.svc:{port['port']}"
    assert port["port"] == 9999
    other = helm.render("--set", "kafka.enabled=true", "--set", "kafka.advertised=kafka.example.com:443")
    assert settings(other)["TOPICS_KAFKA_ADVERTISED"] == "kafka.example.com:443"


def test_one_cell_is_the_chart_without_cells(helm: Helm) -> None:
    usual = ("-f", str(CHART / "ci/tls-values.yaml"))

    def rendered(*options: str) -> list[Document]:
        return [each for each in helm.render(*usual, *options) if each["kind"] != "Secret"]

    assert rendered() == rendered("--set", "cells=1", "--set", "gateways=5")
    assert not [name for name in settings(rendered()) if "CELL" in name or "GATEWAYS" in name]


def test_each_cell_has_ports_where_clients_are_told(helm: Helm) -> None:
    documents = helm.render("-f", str(CHART / "ci/cells-values.yaml"))
    found = settings(documents)
    assert (found["TOPICS_CELLS"], found["TOPICS_GATEWAYS"]) == ("3", "2")
    service = find(documents, "Service")
    ports = {each["name"]: each["port"] for each in service["spec"]["ports"]}
    for name, first in (("TOPICS_KAFKA_ADVERTISED", "kafka"), ("TOPICS_CELL_ADVERTISED", "cell-0")):
        assert found[name] == f"{service['metadata']['name']}.somewhere.svc:{ports[first]}"
    assert [ports[name] - ports["kafka"] for name in ("kafka", "kafka-1", "kafka-2")] == [0, 1, 2]
    assert [ports[name] - ports["cell-0"] for name in ("cell-0", "cell-1", "cell-2")] == [0, 1, 2]
    [clients] = find(documents, "NetworkPolicy")["spec"]["ingress"]
    assert [each["port"] for each in clients["ports"]] == list(ports)
    options = ("cells=3", "kafka.enabled=true", "service.type=NodePort", "kafka.nodePort=30100")
    other = find(helm.render(*[option for each in options for option in ("--set", each)]), "Service")
    assert [each["nodePort"] for each in other["spec"]["ports"] if "nodePort" in each] == [30100, 30101, 30102]


def test_two_releases_share_no_name(helm: Helm) -> None:
    one, two = (
        helm.render("-f", str(CHART / "ci/full-values.yaml"), "--set", f"serviceAccount.name={name}", release=name)
        for name in ("one", "two")
    )
    names = [{(each["kind"], each["metadata"]["name"]) for each in documents} for documents in (one, two)]
    assert len(names[0]) == len(one)
    assert not names[0] & names[1]
    selector = find(one, "StatefulSet")["spec"]["selector"]["matchLabels"]
    assert not selects(selector, pods(two)["StatefulSet"]["metadata"]["labels"])


@pytest.mark.parametrize("release", ["topics", "a" * 53])
def test_any_name_of_a_release_leaves_room(helm: Helm, release: str) -> None:
    for document in helm.render("-f", str(CHART / "ci/full-values.yaml"), release=release):
        # A StatefulSet appends 11 characters to its name in a label; so does a CronJob.
        assert len(document["metadata"]["name"]) <= 52


# -- secrets -----------------------------------------------------------------------------------------------------------


def references(documents: Sequence[Document]) -> set[tuple[str, str]]:
    """(Secret, key) of every reference, except references to a whole Secret as environment."""
    found: set[tuple[str, str]] = set()
    for mapping in (each for document in documents for each in named(document)):
        for kind in ("secretKeyRef", "credentials"):
            if isinstance(mapping.get(kind), dict):
                found.add((mapping[kind]["name"], mapping[kind]["key"]))
        if "secretName" in mapping and "items" in mapping:
            found |= {(mapping["secretName"], item["key"]) for item in mapping["items"]}
        if isinstance(mapping.get("ca"), dict):
            found.add((mapping["ca"]["secret"]["name"], mapping["ca"]["secret"]["key"]))
    return found


def test_the_generated_secret_has_all_referenced_keys(helm: Helm) -> None:
    documents = helm.render("-f", str(CHART / "ci/full-values.yaml"))
    secret = find(documents, "Secret")
    assert references(documents) == {(secret["metadata"]["name"], key) for key in secret["data"]}


def test_an_existing_secret_is_referenced_by_its_keys(helm: Helm) -> None:
    documents = helm.render("-f", str(CHART / "ci/tls-values.yaml"))
    assert "Secret" not in {document["kind"] for document in documents}
    assert references(documents) == {
        ("broker-keys", "list"),
        ("broker-keys", "everything"),
        ("broker-keys", "reading"),
        ("broker-tls", "tls.crt"),
        ("broker-tls", "tls.key"),
        ("broker-tls", "ca.crt"),
    }


def test_generated_keys_are_valid_for_the_broker(default: Sequence[Document]) -> None:
    data = {name: base64.b64decode(value).decode() for name, value in find(default, "Secret")["data"].items()}
    parsed = {key.digest: key for key in parse_file(data["api-keys"])}
    [admin], [metrics] = parse_file(data["admin-key"]), parse_file(data["metrics-key"])
    assert set(parsed) == {admin.digest, metrics.digest}
    assert parsed[admin.digest].grant.scopes == EVERYTHING
    assert parsed[metrics.digest].grant.scopes == READ
    assert len(data["admin-key"]) >= 40


def test_credentials_of_the_cold_tier_are_for_the_broker_alone(helm: Helm) -> None:
    documents = helm.render("-f", str(CHART / "ci/full-values.yaml"))
    assert {"secretRef": {"name": "bucket-credentials"}} in broker(documents)["envFrom"]
    for kind in ("Pod", "CronJob backup"):
        assert "envFrom" not in container(pods(documents)[kind])


# -- probes, stopping, safety ------------------------------------------------------------------------------------------


def test_probes_call_existing_paths(documents: Sequence[Document]) -> None:
    served = openapi(OPERATIONS)["paths"]
    found = broker(documents)
    paths = {name: found[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    # Readiness is 503 during a replay, so nothing that ends a pod may depend on it.
    assert paths == {"startupProbe": "/v0/health", "livenessProbe": "/v0/health", "readinessProbe": "/v0/ready"}
    assert set(paths.values()) <= set(served)
    tls = "TOPICS_TLS_CERT" in settings(documents)
    assert {found[name]["httpGet"]["scheme"] for name in paths} == {"HTTPS" if tls else "HTTP"}
    assert {found[name]["httpGet"]["port"] for name in paths} == {"http"} == {found["ports"][0]["name"]}
    assert "preStop" not in found.get("lifecycle", {})


def test_the_drain_is_longer_than_readiness_takes_and_the_grace_longer_than_a_stop(
    documents: Sequence[Document],
) -> None:
    drain_ms = int(settings(documents)["TOPICS_DRAIN_MS"])
    probe = broker(documents)["readinessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] * 1000 < drain_ms
    assert pods(documents)["StatefulSet"]["spec"]["terminationGracePeriodSeconds"] * 1000 >= drain_ms + 20_000


def test_the_defaults_of_the_specification(default: Sequence[Document]) -> None:
    assert settings(default)["TOPICS_DRAIN_MS"] == "5000"
    stateful = find(default, "StatefulSet")["spec"]
    assert stateful["template"]["spec"]["terminationGracePeriodSeconds"] == 60
    assert stateful["podManagementPolicy"] == "Parallel"
    assert stateful["replicas"] == 1
    assert stateful["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert find(default, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    topology = [each["topologyKey"] for each in named(stateful["template"]) if "topologyKey" in each]
    assert topology == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]


def test_pods_are_as_small_a_risk_as_can_be(documents: Sequence[Document]) -> None:
    for kind, pod in pods(documents).items():
        spec = pod["spec"]
        assert spec["enableServiceLinks"] is False, kind
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"]
        assert container(pod)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"cpu", "memory"} <= set(container(pod)["resources"]["requests"])
        assert "memory" in container(pod)["resources"]["limits"]


def test_claims_of_the_release_never_change_with_the_chart(default: Sequence[Document]) -> None:
    [claim] = find(default, "StatefulSet")["spec"]["volumeClaimTemplates"]
    # Such labels would make an upgrade fail: claims of a StatefulSet are immutable.
    assert not {"helm.sh/chart", "app.kubernetes.io/version"} & set(claim["metadata"]["labels"])


def test_the_service_monitor_scrapes_an_existing_port_and_path(helm: Helm) -> None:
    documents = helm.render("-f", str(CHART / "ci/full-values.yaml"))
    monitor = find(documents, "ServiceMonitor")["spec"]
    services = [each for each in documents if each["kind"] == "Service"]
    chosen = [each for each in services if selects(monitor["selector"]["matchLabels"], each["metadata"]["labels"])]
    # Exactly one service selects the pods, also those that are not ready.
    assert [each["spec"]["publishNotReadyAddresses"] for each in chosen] == [True]
    [endpoint] = monitor["endpoints"]
    assert endpoint["port"] in [port["name"] for port in chosen[0]["spec"]["ports"]]
    assert endpoint["path"] in openapi(OPERATIONS)["paths"]


def test_the_chart_is_for_this_version_of_the_broker(default: Sequence[Document]) -> None:
    assert broker(default)["image"].rpartition(":")[2] == VERSION
