"""Unmodified Kafka clients follow the leaders and coordinators of a cluster, while nodes are killed and cells moved:
every acked record is there once, and every group reads all of it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import random
import socket
import tempfile
import time
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.kafka.apis import ApiKey
from broker.kafka.messages.metadata import MetadataRequest, MetadataResponse
from loadtest.killed_nodes import Cluster, NodeProcess, ask_node, parser
from loadtest.slow_s3 import SlowS3
from storage import home_cell
from tests.kafka.server import Wire
from tests.support.group_load import all_values
from tests.support.kafka_followers import (
    AioFollower,
    Follower,
    FranzFollower,
    JavaFollower,
    KafkaPythonFollower,
    LibrdkafkaFollower,
    SaramaFollower,
)

PATIENCE_S = 180.0
#: Of an attempt to make a topic, while cells move: it exists, or has to be tried again.
_MAYBE: Final = (
    KafkaError.TOPIC_ALREADY_EXISTS,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TIMED_OUT,
)


class Size(NamedTuple):
    nodes: int
    cells: int
    rounds: int
    partitions: int
    clients: tuple[type[Follower], ...]


#: All followers.
SIX: Final = (LibrdkafkaFollower, KafkaPythonFollower, AioFollower, JavaFollower, FranzFollower, SaramaFollower)
SIZES = [
    Size(2, 2, 1, 2, (LibrdkafkaFollower, KafkaPythonFollower)),
    Size(3, 6, 5, 6, SIX),
]


@contextlib.contextmanager
def a_cluster(nodes: int, cells: int) -> Generator[Cluster]:
    """A cluster that has not started."""
    # A short path: it has unix sockets.
    with tempfile.TemporaryDirectory(prefix="tk") as folder, SlowS3() as store:
        cluster = Cluster(store, parser().parse_args(["--nodes", f"{nodes}", "--cells", f"{cells}", "--dir", folder]))
        # A node that starts again has its ports again.
        for node, first in zip(cluster.nodes, free_ranges(nodes, cells), strict=True):
            node.settings["KAFKA_PORT"] = str(first)
        try:
            yield cluster
        finally:
            cluster.close()


def free_ranges(count: int, length: int) -> Iterator[int]:
    """The first ports of ranges in which nobody listens. They are below those that the kernel gives to others."""
    below = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    firsts = range(below // 2, below - length, length)
    found = (first for first in random.sample(firsts, len(firsts)) if all(map(is_free, range(first, first + length))))
    return itertools.islice(found, count)


def is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return True
    return False


def entry(cluster: Cluster, cell: int) -> dict[str, Any]:
    """What a node that runs says of a cell. On a crowded machine, one that has just started may not answer in time."""
    while True:
        for node in filter(lambda each: each.port, cluster.nodes):
            with contextlib.suppress(OSError, HTTPException):
                return next(each for each in ask_node(node, "GET", "/v0/cluster")["cells"] if each["cell"] == cell)


def node_of(cluster: Cluster, cell: int) -> NodeProcess:
    """The owner's, when there is one."""
    while (name := entry(cluster, cell).get("node")) is None:
        time.sleep(0.1)
    return next(each for each in cluster.nodes if each.name == name)


def addresses(cluster: Cluster) -> str:
    """All Kafka ports of all nodes. That of a cell refuses connections at a node that does not own the cell."""
    return ",".join(
        f"{node.host}:{int(node.settings['KAFKA_PORT']) + cell}"
        for cell in range(cluster.cells)
        for node in cluster.nodes
    )


def moved(cluster: Cluster, cell: int) -> None:
    """Move the cell to another node, and return when it is there."""
    at = node_of(cluster, cell)
    to = next(each for each in cluster.nodes if each is not at)
    deadline = time.monotonic() + PATIENCE_S
    # A node that has just started is not known to all others yet.
    while "plan" not in (told := ask_node(at, "PUT", f"/v0/cluster/cells/{cell}/node", {"node": to.name})):
        assert time.monotonic() < deadline, told
        time.sleep(0.1)
    while node_of(cluster, cell) is not to:
        assert time.monotonic() < deadline, f"cell {cell} stays at {at.name}"
        time.sleep(0.1)
    cluster.until_whole()
    ask_node(at, "DELETE", f"/v0/cluster/cells/{cell}/node")


def make_topics(address: str, names: list[str], partitions: int) -> None:
    """Of class fsync: of others, the end may be lost with a node, and idempotent producers notice."""
    left = names
    deadline = time.monotonic() + PATIENCE_S
    while left:  # cells may move just now
        assert time.monotonic() < deadline, f"{left} cannot be made"
        # A new client, because one that waits for a controller that has moved does not ask for another.
        admin: Any = AdminClient({"bootstrap.servers": address, "socket.timeout.ms": 10_000})
        topics = [NewTopic(name, partitions, 1, config={"topics.durability": "fsync"}) for name in left]
        made = admin.create_topics(topics)
        left = [name for name in left if not _is_made(made[name])]


def _is_made(made: Future[None]) -> bool:
    """Whether the topic exists. Raises KafkaException if it was refused for good."""
    try:
        made.result(PATIENCE_S)
    except KafkaException as error:
        code = error.args[0].code()
        if code not in _MAYBE:
            raise
        return code == KafkaError.TOPIC_ALREADY_EXISTS
    return True


async def first_brokers(port: int) -> list[int]:
    """The nodes in the first Metadata that is answered at a port."""
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            wire = Wire(*await asyncio.open_connection("127.0.0.1", port))
            try:
                found = await wire.ask(ApiKey.METADATA, 9, MetadataRequest(topics=[]), MetadataResponse)
            finally:
                await wire.close()
            return [each.node_id for each in found.brokers]
        await asyncio.sleep(0.001)


@pytest.mark.timeout(300)
async def test_a_port_answers_no_metadata_without_brokers() -> None:
    """librdkafka does not ask again when it gets such an answer: an admin client then waited until its request timed
    out."""
    with contextlib.ExitStack() as stack:
        cluster = await asyncio.to_thread(stack.enter_context, a_cluster(1, 2))
        [node] = cluster.nodes
        asked = [first_brokers(int(node.settings["KAFKA_PORT"]) + cell) for cell in range(2)]
        found, _ = await asyncio.gather(asyncio.gather(*asked), asyncio.to_thread(cluster.start))
        assert all(found), found


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # kafka-python leaves some to the collector
@pytest.mark.parametrize("size", SIZES, ids=["small", "all"])
def test_kafka_clients_follow_cells_to_other_nodes(size: Size, tmp_path: Path) -> None:
    with a_cluster(size.nodes, size.cells) as cluster, contextlib.ExitStack() as stack:
        cluster.start()
        address = addresses(cluster)
        followers: list[Follower] = []
        for number, kind in enumerate(size.clients):
            folder = tmp_path / kind.name
            folder.mkdir()
            # The home cells differ: those of the topics, and those of the groups.
            wanted = number % size.cells
            topic = next(n for n in (f"{kind.name}-{i}" for i in range(1000)) if home_cell(n, size.cells) == wanted)
            followers.append(kind(address, topic, folder))
        make_topics(address, [each.topic for each in followers], size.partitions)
        for each in followers:
            stack.enter_context(each.running())
        for each in followers:
            each.goes_on()
        for number in range(size.rounds):
            moved(cluster, number % size.cells)
            for each in followers:
                each.goes_on()
            victim = node_of(cluster, (number + 1) % size.cells)
            cluster.kill(victim)
            cluster.until_whole(but=victim)
            for each in followers:
                each.goes_on()
            cluster.launch(victim)
            cluster.until_whole()
        for each in followers:
            each.has_read_all()
        for each in followers:
            found = all_values(address, [(each.topic, partition) for partition in range(size.partitions)])
            assert [value for value in each.acked if found[value] != 1] == []
            assert max(found.values()) == 1, "a record is doubled"
            assert each.problems == []
    gc.collect()
