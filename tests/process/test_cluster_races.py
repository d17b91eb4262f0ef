"""Clients of two nodes do at the same time what only one of them may do: they send a write with the same key, and they
delete and create a topic of the same name, while cells move between the nodes."""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from broker.cluster import Plan, order
from storage import home_cell
from storage.bucket import open_location, parse_location
from tests.conftest import is_soak
from tests.process import test_cluster
from tests.process.test_cluster import CELLS, FAILED, PATIENCE_S, Rig, contents, request

SOAK = is_soak(os.environ)
pytestmark = [pytest.mark.timeout(7200 if SOAK else 600)]

ROUNDS = 200 if SOAK else 8
#: A cell goes to the other node in one of so many rounds.
ROUNDS_A_MOVE = 4
#: At each gateway.
CLIENTS = 2
#: What each client does with the name in a round.
STEPS = 6
#: The answers to a deletion that say that the topic is not there now.
GONE = (200, 204, 404)

shared, rig = test_cluster.shared, test_cluster.rig


def ask(rig: Rig, node: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Through the gateway of a node. 0: no answer."""
    try:
        return request(("127.0.0.1", rig.nodes[node].port), method, path, body)
    except FAILED:
        return 0, None


def ask_until(
    rig: Rig, node: str, wanted: tuple[int, ...], method: str, path: str, body: Any = None
) -> tuple[int, Any]:
    """Again and again, until the answer has one of these statuses."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        status, answer = ask(rig, node, method, path, body)
        if status in wanted:
            return status, answer
        assert status in (0, 404, 409, 429, 503), (method, path, status, answer)
        assert time.monotonic() < deadline, (method, path, status, answer, rig.nodes[node].plain_log())
        time.sleep(0.02)


def together(*works: Callable[[], None]) -> None:
    """Run these in threads that begin at the same moment. Raises what the first of them raises."""
    barrier, errors = threading.Barrier(len(works)), list[BaseException]()

    def run(work: Callable[[], None]) -> None:
        barrier.wait()
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(each,), daemon=True) for each in works]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if errors:
        raise errors[0]


def move(rig: Rig, cell: int) -> None:
    """To the node that does not have it."""
    to = "b" if rig.owner(cell) == "a" else "a"
    order(open_location(parse_location(rig.url)), Plan(), lambda plan: plan.moved(cell, to))


@pytest.fixture
def gateways(rig: Rig) -> Rig:
    for node in rig.nodes.values():
        node.wait_listening()
    return rig


# -- one key ----------------------------------------------------------------------------------------------------------


def test_a_key_that_comes_through_two_gateways_is_stored_once(gateways: Rig) -> None:
    rig = gateways
    for number in range(ROUNDS * CELLS):
        cell, answers = number % CELLS, list[Any]()
        body = {"records": [{"data": number}], "idempotency_key": f"key-{number}"}

        def append(node: str, cell: int = cell, body: Any = body, answers: list[Any] = answers) -> None:
            answers.append(ask_until(rig, node, (200, 201), "POST", f"/v0/topics/{rig.topics[cell]}", body)[1])

        if number % (ROUNDS_A_MOVE * CELLS) == 0:
            move(rig, cell)
        together(*(lambda node=node: append(node) for node in list(rig.nodes) * CLIENTS))
        assert len({answer["first_seq"] for answer in answers}) == 1, answers
        # None, if the answer to the one that stored it was lost.
        assert sum(not answer["deduped"] for answer in answers) <= 1, answers
    rig.until(rig.whole)
    for cell in range(CELLS):
        assert contents(rig, cell) == [*range(cell, ROUNDS * CELLS, CELLS)]


# -- one name ---------------------------------------------------------------------------------------------------------


@dataclass
class Written:
    """A record that was acked: when it was sent, and when the answer was there."""

    partition: int
    sent: float
    acked: float


@dataclass
class Name:
    """What clients did with a name. Times are those of this process."""

    topic: str
    written: dict[int, Written] = field(default_factory=dict[int, Written])
    #: Of deletions: when the first attempt was sent, and when it was known that the topic is gone.
    deleted: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def judge(self, found: dict[int, int]) -> list[str]:
        """What is wrong with the records that are there: number → partition."""
        wrong: list[str] = []
        for number, partition in found.items():
            known = self.written.get(number)
            if known is None:
                continue  # its outcome is unknown
            if partition != known.partition:
                wrong.append(f"{number} is in partition {partition} and was acked in {known.partition}")
            if any(begin > known.acked for begin, _ in self.deleted):
                wrong.append(f"{number} was deleted with its topic and is there")
        last = max((end for _, end in self.deleted), default=0.0)
        lost = [number for number, each in self.written.items() if each.sent > last and number not in found]
        return wrong + [f"{number} was acked and is lost" for number in lost]


def client(rig: Rig, node: str, name: Name, dice: random.Random) -> None:
    """Create, append and delete."""
    path = f"/v0/topics/{name.topic}"
    for _ in range(STEPS):
        match dice.choice(("create", "append", "append", "delete")):
            case "create":
                ask(rig, node, "PUT", path, {"durability": "fsync", "partitions": CELLS})
            case "append":
                append(rig, node, name, dice.randrange(CELLS))
            case _:
                begin = time.monotonic()
                ask_until(rig, node, GONE, "DELETE", path)
                name.deleted.append((begin, time.monotonic()))


def append(rig: Rig, node: str, name: Name, partition: int) -> int:
    number, sent = next(name.numbers), time.monotonic()
    body = {"records": [{"data": number}], "create": False}
    status, answer = ask(rig, node, "POST", f"/v0/topics/{name.topic}?partition={partition}", body)
    if status == 200:
        name.written[number] = Written(answer.get("partition", 0), sent, time.monotonic())
    return status


def appends(rig: Rig, node: str, name: Name, partition: int) -> bool:
    return append(rig, node, name, partition) == 200


def records(rig: Rig, node: str, topic: str) -> dict[int, int]:
    """Number → partition of all records."""
    found: dict[int, int] = {}
    for partition in range(CELLS):
        at = 0
        while True:
            path = f"/v0/topics/{topic}/records?partition={partition}&from_seq={at}&limit=1000"
            _, page = ask_until(rig, node, (200,), "GET", path)
            numbers = [each["data"] for each in page["records"]]
            assert len({*numbers, *found}) == len(numbers) + len(found), "records are doubled"
            found |= dict.fromkeys(numbers, partition)
            if page["caught_up"]:
                break
            at = page["next_from_seq"]
    return found


def test_a_name_that_is_deleted_and_created_at_two_nodes_keeps_what_was_acked_last(
    gateways: Rig, dice: random.Random
) -> None:
    rig = gateways
    for number in range(ROUNDS):
        name = Name(next(each for each in _names(number) if home_cell(each, CELLS) == number % CELLS))
        if number % ROUNDS_A_MOVE == 0:
            move(rig, number // ROUNDS_A_MOVE % CELLS)
        nodes = list(rig.nodes) * CLIENTS
        together(*(partial(client, rig, node, name, random.Random(dice.randrange(1 << 30))) for node in nodes))
        body = {"durability": "fsync", "partitions": CELLS}
        ask_until(rig, "a", (200, 201), "PUT", f"/v0/topics/{name.topic}", body)
        for node in rig.nodes:
            for partition in range(CELLS):
                rig.until(partial(appends, rig, node, name, partition))
        epochs: list[list[int]] = []
        for node in rig.nodes:
            state = ask_until(rig, node, (200,), "GET", f"/v0/topics/{name.topic}?complete=true")[1]
            epochs.append([each["epoch"] for each in state["partitions"]])
            assert name.judge(records(rig, node, name.topic)) == [], name
        assert len(epochs[0]) == CELLS
        assert epochs[0] == epochs[1]
        # Nothing is left of it in any cell.
        ask_until(rig, "b", GONE, "DELETE", f"/v0/topics/{name.topic}")
        assert ask_until(rig, "a", (404,), "GET", f"/v0/topics/{name.topic}/records")[0] == 404
        assert ask_until(rig, "a", (200,), "GET", f"/v0/topics?prefix={name.topic}")[1]["topics"] == []


def _names(number: int) -> Iterator[str]:
    return (f"race-{number}-{each}" for each in itertools.count())


def test_the_ledger_of_a_name_notices_what_is_wrong() -> None:
    name = Name("x", {1: Written(0, 1.0, 2.0), 2: Written(1, 5.0, 6.0)}, [(3.0, 4.0)])
    assert name.judge({2: 1}) == []
    assert name.judge({2: 1, 9: 0}) == []
    assert name.judge({1: 0, 2: 1}) == ["1 was deleted with its topic and is there"]
    assert name.judge({2: 0}) == ["2 is in partition 0 and was acked in 1"]
    assert name.judge({}) == ["2 was acked and is lost"]
