"""With a bucket the release is a cluster: what its objects say to Kubernetes, to the nodes and to clients."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker.node import DRAIN_S
from tests.support.chart import CHART, Document, Helm, container, find, pods, settings, variables

pytestmark = pytest.mark.fast

BUCKET = ("--set", "store.bucket=s3://bucket/prefix")
CLUSTER, CLAIMED = (("-f", str(CHART / f"ci/{name}-values.yaml")) for name in ("cluster", "claimed-cluster"))


@pytest.fixture
def cluster(helm: Helm) -> Sequence[Document]:
    return helm.render(*CLUSTER)


def node(documents: Sequence[Document], number: int) -> dict[str, str]:
    """What the container of a pod gets beside the ConfigMap."""
    name = find(documents, "StatefulSet")["metadata"]["name"]
    secrets: dict[tuple[str, str], str] = {}
    return variables(
        container(pods(documents)["StatefulSet"]), f"{name}-{number}", lambda *key: secrets.setdefault(key, str(key))
    )


def test_each_pod_is_a_node_with_addresses_of_its_own(helm: Helm) -> None:
    documents = helm.render(*BUCKET, "--set", "kafka.enabled=true", "--set", "cellPorts.enabled=true")
    headless = find(documents, "Service", "-headless")
    names = {port["name"]: port["port"] for port in headless["spec"]["ports"]}
    for number in range(3):
        found = node(documents, number)
        assert found["TOPICS_NODE"] == f"release-topics-broker-{number}"
        host = f"release-topics-broker-{number}.{headless['metadata']['name']}.somewhere.svc"
        for name, port in (("", "http"), ("CLUSTER_", "cluster"), ("KAFKA_", "kafka"), ("CELL_", "cell-0")):
            assert found[f"TOPICS_{name}ADVERTISED"] == f"{host}:{names[port]}"
    assert not {name for name in settings(documents) if "ADVERTISED" in name or "SECRET" in name}


def test_addresses_for_clients_outside_have_the_name_of_the_pod(cluster: Sequence[Document]) -> None:
    services = [each for each in cluster if each["metadata"]["labels"].get("app.kubernetes.io/component") == "pod"]
    assert len(services) == find(cluster, "StatefulSet")["spec"]["replicas"] == 3
    for number, service in enumerate(services):
        pod = f"release-topics-broker-{number}"
        assert service["metadata"]["name"] == service["spec"]["selector"]["statefulset.kubernetes.io/pod-name"] == pod
        [host] = service["metadata"]["annotations"].values()
        assert host == f"{pod}.topics.example.com"
        ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
        assert node(cluster, number)["TOPICS_KAFKA_ADVERTISED"] == f"{host}:{ports['kafka']}"
        assert [ports[f"kafka-{cell}"] - ports["kafka"] for cell in range(1, 6)] == [1, 2, 3, 4, 5]


def test_the_bucket_is_the_only_volume(helm: Helm, cluster: Sequence[Document]) -> None:
    def data(documents: Sequence[Document]) -> Document | None:
        volumes = pods(documents)["StatefulSet"]["spec"]["volumes"]
        return next((each for each in volumes if each["name"] == "data"), None)

    assert "volumeClaimTemplates" not in find(cluster, "StatefulSet")["spec"]
    assert data(cluster) == {"name": "data", "emptyDir": {}}
    limited = data(helm.render(*BUCKET, "--set", "store.cache.sizeLimit=10Gi"))
    assert limited == {"name": "data", "emptyDir": {"sizeLimit": "10Gi"}}
    claimed = helm.render(*CLAIMED)
    spec = find(claimed, "StatefulSet")["spec"]
    [claim] = spec["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    # A copy, which goes with its node.
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Delete", "whenScaled": "Delete"}
    assert data(claimed) is None


def test_an_init_container_makes_the_cluster_that_the_broker_joins(helm: Helm, cluster: Sequence[Document]) -> None:
    pod = pods(cluster)["StatefulSet"]["spec"]
    [init] = pod["initContainers"]
    assert init["command"][2:] == [
        "topics_broker.storage", "cluster", "init", settings(cluster)["TOPICS_CLUSTER_URL"],
        "--cells", "6", "--if-not-exists",
    ]  # fmt: skip
    broker = container(pods(cluster)["StatefulSet"])
    assert init["image"] == broker["image"]
    assert init["securityContext"] == broker["securityContext"]
    credentials = {"secretRef": {"name": "bucket-credentials"}}
    assert init["envFrom"] == [credentials]
    assert credentials in broker["envFrom"]
    assert {"name": "AWS_REGION", "value": "eu-central-1"} in init["env"]
    assert "initContainers" not in pods(helm.render(*CLAIMED))["StatefulSet"]["spec"]


def test_nodes_know_each_other_by_a_secret(helm: Helm, cluster: Sequence[Document]) -> None:
    secret = find(cluster, "Secret", "-cluster")
    [(key, _)] = secret["data"].items()
    assert node(cluster, 0)["TOPICS_CLUSTER_SECRET"] == str((secret["metadata"]["name"], key))
    claimed = helm.render(*CLAIMED)
    assert node(claimed, 0)["TOPICS_CLUSTER_SECRET"] == str(("nodes", "secret"))
    assert [each["metadata"]["name"] for each in claimed if each["kind"] == "Secret"] == ["release-topics-broker-keys"]


def test_the_grace_period_is_longer_than_giving_the_cells_away(helm: Helm) -> None:
    documents = helm.render(*BUCKET)
    grace_s = pods(documents)["StatefulSet"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s >= DRAIN_S + int(settings(documents)["TOPICS_DRAIN_MS"]) / 1000 + 20
    assert find(documents, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert find(documents, "StatefulSet")["spec"]["updateStrategy"]["type"] == "RollingUpdate"


def test_more_nodes_change_nothing_that_is_fixed(helm: Helm) -> None:
    three, five = (find(helm.render(*BUCKET, "--set", f"replicaCount={n}"), "StatefulSet")["spec"] for n in (3, 5))
    assert (three.pop("replicas"), five.pop("replicas")) == (3, 5)
    # Otherwise scaling would start all nodes again.
    assert three == five


def test_the_certificate_has_the_names_of_the_service_and_of_the_nodes(cluster: Sequence[Document]) -> None:
    certificate = find(cluster, "Certificate")["spec"]
    assert {"release-topics-broker.somewhere.svc", "*.release-topics-broker-headless.somewhere.svc"} <= set(
        certificate["dnsNames"]
    )
    assert "*.topics.example.com" in certificate["dnsNames"]
    [volume] = [each for each in pods(cluster)["StatefulSet"]["spec"]["volumes"] if each["name"] == "tls"]
    assert volume["secret"]["secretName"] == certificate["secretName"]
