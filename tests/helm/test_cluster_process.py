"""The chart with a bucket, run as processes: three nodes make a cluster, one is killed, all are rolled, and the release
is scaled to more nodes and back. A ledger has every answer that writers got."""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from loadtest.slow_s3 import BUCKET, SlowS3
from tests.conftest import is_soak
from tests.support.chart import Document, Helm, find, pods
from tests.support.pod_process import NodePod, contents

pytestmark = [pytest.mark.timeout(3000)]

#: Four nodes are sixteen processes, and a crowded machine starts them slowly.
PATIENCE_S = 600.0
LOOK_AGAIN_S = 0.1
#: Between two appends of a writer, which shares its process with the other ones.
PAUSE_S = 0.25
#: How many nodes the release is scaled to.
MORE = 5 if is_soak(os.environ) else 4
#: One for each of them.
CELLS = MORE
VALUES = (
    f"store.bucket=s3://{BUCKET}/helm",
    f"store.cells={CELLS}",
    "store.secretRef=store",
    "terminationGracePeriodSeconds=600",
    "drainMs=1000",
    "settings.TOPICS_WAL_FILE_BYTES=1048576",
    "settings.TOPICS_WAL_RESERVE_BYTES=65536",
    "settings.TOPICS_PUT_INTERVAL_MS=500",
)
FAILED = (OSError, http.client.HTTPException, ValueError)


class Kubernetes:
    """What the controllers and the kubelets do with the objects of the release. `service`: the pods that the Service
    leads to."""

    def __init__(self, helm: Helm, folder: Path, store: Document) -> None:
        self._helm, self._folder, self._store = helm, folder, store
        # Each run has addresses of its own, as its ports are those of the manifest.
        net = f"127.{random.randint(16, 250)}.{random.randint(1, 250)}"
        self._numbers = itertools.count()
        self.documents: Sequence[Document] = ()
        self.nodes: dict[str, NodePod] = {}
        self.service: set[str] = set()
        self.render(3)
        stateful = find(self.documents, "StatefulSet")
        self._name, under = stateful["metadata"]["name"], stateful["spec"]["serviceName"]
        self._addresses = {f"{self._name}-{n}.{under}.somewhere.svc": f"{net}.{n + 10}" for n in range(5)}
        secret = find(self.documents, "Secret", "-keys")["metadata"]["name"]
        self.key = contents(self.documents, "Secret", secret)["admin-key"].decode()

    def render(self, replicas: int, *more: str) -> None:
        """`helm upgrade`: generated Secrets stay."""
        options = [f"replicaCount={replicas}", *VALUES, *more]
        rendered = self._helm.render(*[part for each in options for part in ("--set", each)])
        secrets = [each for each in self.documents if each["kind"] == "Secret"]
        if secrets:
            rendered = [each for each in rendered if each["kind"] != "Secret"]
        else:
            secrets = [self._store]
        self.documents = [*rendered, *secrets]

    @property
    def wanted(self) -> list[str]:
        """The names of the pods of the StatefulSet, in the order of their numbers."""
        replicas = find(self.documents, "StatefulSet")["spec"]["replicas"]
        return [f"{self._name}-{number}" for number in range(replicas)]

    def create(self, name: str) -> None:
        """A new pod with empty folders."""
        folder = self._folder / f"{next(self._numbers)}"
        folder.mkdir()
        self.nodes[name] = NodePod(self.documents, pods(self.documents)["StatefulSet"], folder, name, self._addresses)
        self.nodes[name].begin(PATIENCE_S)

    def create_all(self, names: Sequence[str]) -> None:
        """Create pods at the same time (podManagementPolicy Parallel), and wait until they are ready."""
        threads = [threading.Thread(target=self.create, args=(name,)) for name in names]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        for name in names:
            self.wait_ready(name)

    def wait_ready(self, name: str) -> None:
        self.nodes[name].wait_ready(PATIENCE_S)
        self.service.add(name)

    def delete(self, name: str) -> None:
        """The Service leads to the pod no more, it gets SIGTERM, and must end by itself."""
        self.service.discard(name)
        pod = self.nodes[name]
        pod.terminate()
        grace_s = pods(self.documents)["StatefulSet"]["spec"]["terminationGracePeriodSeconds"]
        assert pod.ended(grace_s) == 0, pod.log()
        del self.nodes[name]

    def roll(self) -> None:
        """From the last pod to the first, each when the one before is ready."""
        for name in reversed(self.wanted):
            self.delete(name)
            self.create(name)
            self.wait_ready(name)

    def scale(self, replicas: int) -> None:
        before = self.wanted
        self.render(replicas)
        for name in before[replicas:]:
            self.delete(name)
        self.create_all(self.wanted[len(before) :])

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Ask the Service. Raises FAILED."""
        name = random.choice(sorted(self.service))
        return self.nodes[name].call(method, path, body, key=self.key, timeout_s=20)

    def owners(self) -> list[str | None]:
        """The node of each cell, as some node tells."""
        status, answer = self.call("GET", "/v0/cluster")
        assert status == 200, answer
        return [each.get("node") for each in answer["cells"]]

    def until_owned_by(self, names: Sequence[str]) -> None:
        """Wait until these nodes, each of them, have all cells."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(*FAILED, AssertionError, KeyError):
                if set(self.owners()) == set(names):
                    return
            assert time.monotonic() < deadline, "\n".join(f"{n}:\n{pod.log()}" for n, pod in self.nodes.items())
            time.sleep(LOOK_AGAIN_S)

    def end(self) -> None:
        for pod in self.nodes.values():
            with contextlib.suppress(AssertionError):
                pod.kill()


class Writer(threading.Thread):
    """Appends 1, 2, 3 and so on to a topic. `has_key`: a number is sent again with its idempotency key until it is
    acked; otherwise one whose outcome is unknown is never sent again."""

    def __init__(self, cluster: Kubernetes, topic: str, *, has_key: bool) -> None:
        super().__init__(daemon=True)
        self._cluster, self.topic, self._has_key = cluster, topic, has_key
        self.acked: list[int] = []
        self.done = threading.Event()

    def run(self) -> None:
        number = 1
        while not self.done.is_set():
            body: dict[str, Any] = {"records": [{"data": number}]}
            if self._has_key:
                body["idempotency_key"] = f"{self.topic}-{number}"
            try:
                status, _ = self._cluster.call("POST", f"/v0/topics/{self.topic}", body)
            except (*FAILED, KeyError, IndexError):
                status = 0
            if status == 200:
                self.acked.append(number)
            time.sleep(PAUSE_S)
            if status == 200 or not self._has_key:
                number += 1


class Ledger:
    """Writers to topics all over the cells."""

    def __init__(self, cluster: Kubernetes) -> None:
        self._cluster = cluster
        self.writers = [Writer(cluster, f"t{number}", has_key=number % 2 == 0) for number in range(4)]
        for each in self.writers:
            status, answer = cluster.call("PUT", f"/v0/topics/{each.topic}", {"durability": "fsync"})
            assert status == 201, answer
            each.start()

    def until_all_go_on(self) -> None:
        before = [len(each.acked) for each in self.writers]
        deadline = time.monotonic() + PATIENCE_S
        while not all(len(each.acked) > count + 1 for each, count in zip(self.writers, before, strict=True)):
            assert time.monotonic() < deadline, f"no acks: {before}, {[len(each.acked) for each in self.writers]}"
            time.sleep(LOOK_AGAIN_S)

    def judge(self) -> None:
        for each in self.writers:
            each.done.set()
        for each in self.writers:
            each.join()
            found = self._read(each.topic)
            acked = set(each.acked)
            assert not acked - set(found), "acked records are lost"
            assert len(found) == len(set(found)), "records are doubled"
            # One whose outcome is unknown may still be under way when the next one is acked.
            assert [number for number in found if number in acked] == each.acked

    def _read(self, topic: str) -> list[int]:
        deadline = time.monotonic() + PATIENCE_S
        found: list[int] = []
        while True:
            path = f"/v0/topics/{topic}/records?limit=1000&from_seq={len(found)}"
            with contextlib.suppress(*FAILED, KeyError):
                status, answer = self._cluster.call("GET", path)
                if status == 200 and not answer["records"]:
                    return found
                if status == 200:
                    found += [each["data"] for each in answer["records"]]
                    continue
            assert time.monotonic() < deadline, f"{topic} cannot be read"
            time.sleep(LOOK_AGAIN_S)


@pytest.fixture
def cluster(helm: Helm) -> Iterator[Kubernetes]:
    # A short path: it has unix sockets.
    folder = Path(tempfile.mkdtemp(prefix="tc"))
    with SlowS3() as store:
        data = {name: base64.b64encode(value.encode()).decode() for name, value in store.environment.items()}
        made = Kubernetes(helm, folder, {"kind": "Secret", "metadata": {"name": "store"}, "data": data})
        try:
            yield made
        finally:
            made.end()
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def ledger(cluster: Kubernetes) -> Ledger:
    """Three nodes, and writers."""
    cluster.create_all(cluster.wanted)
    cluster.until_owned_by(cluster.wanted)
    return Ledger(cluster)


def test_no_acked_write_is_lost_or_doubled_by_a_kill_a_rolling_upgrade_and_more_and_fewer_nodes(
    cluster: Kubernetes, ledger: Ledger
) -> None:
    """One cluster for all of it: its start is most of the work."""
    ledger.until_all_go_on()
    victim = cluster.wanted[1]
    cluster.nodes[victim].kill()  # the container ends, and the Service is told late
    cluster.nodes[victim].begin(PATIENCE_S)
    cluster.wait_ready(victim)
    ledger.until_all_go_on()

    cluster.render(3, "settings.TOPICS_MAX_TOPICS=1000")
    cluster.roll()
    ledger.until_all_go_on()

    cluster.scale(MORE)
    cluster.until_owned_by(cluster.wanted)
    ledger.until_all_go_on()
    cluster.scale(3)
    cluster.until_owned_by(cluster.wanted)
    ledger.until_all_go_on()
    ledger.judge()
