"""Orders to a cluster by clicks: a cell is moved and a node is drained, by keys that may do that."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from loadtest.killed_nodes import Cluster, parser
from loadtest.slow_s3 import SlowS3
from storage import home_cell
from tests.console.built import ConsolePage
from tests.http.browser.chromium import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(6 * PATIENCE_S)]

CELLS = 2


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    # A short path: it has unix sockets.
    with tempfile.TemporaryDirectory(prefix="tn") as folder, SlowS3() as store:
        cluster = Cluster(store, parser().parse_args(["--nodes", "2", "--cells", str(CELLS), "--dir", folder]))
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.close()


def cell_of(http: httpx.Client, number: int) -> dict[str, Any]:
    return http.get("/v0/cluster").raise_for_status().json()["cells"][number]


def node_of(http: httpx.Client, number: int) -> str:
    """The node of a cell, once it is known: on a busy machine, its last sign of life may be too old for a moment."""
    deadline = time.monotonic() + PATIENCE_S
    while "node" not in (found := cell_of(http, number)):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found["node"]


def topic_of(cell: int) -> str:
    return next(f"short-{each}" for each in range(1000) if home_cell(f"short-{each}", CELLS) == cell)


def test_a_cell_is_moved_and_a_node_is_drained_after_questions_that_name_what_is_lost(
    page: ConsolePage, cluster: Cluster
) -> None:
    one, other = cluster.nodes
    url = f"http://{one.host}:{one.port}"
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
        before = node_of(http, 0)
        target = other.name if before == one.name else one.name
        http.put(f"/v0/topics/{topic_of(0)}", json={"durability": "ephemeral"}).raise_for_status()
        http.post(f"/v0/topics/{topic_of(0)}", json={"records": [{"data": 1}]}).raise_for_status()
        page.visit(url)
        page.press("g", "n")
        page.click("Move cell 0")
        page.shows("all records of topics of class ephemeral")
        assert page.evaluate("document.querySelector('dialog [type=submit]').disabled")  # until it is confirmed
        page.fill("To", target)
        page.fill("Type cell 0", "cell 0")
        page.click("Move")
        page.shows(f"Cell 0 was ordered to {target}.")
        page.shows(f"ordered to stay on {target}")  # the cell has arrived
        assert node_of(http, 0) == target
        cluster.until_whole()  # a cell that has just moved may still be refused here
        assert http.get(f"/v0/topics/{topic_of(0)}").raise_for_status().json()["count"] == 0

        page.click("Move cell 0")
        page.fill("To", "")
        page.click("Undo the order")
        page.shows("Cell 0 may be at any node.")
        page.hides(f"ordered to stay on {target}")
        assert "wanted" not in cell_of(http, 0)

        page.click(f"Drain {target}")
        page.shows("also after a restart")
        page.fill(f"Type {target}", target)
        page.click("Drain")
        page.shows("drained")
        assert {node_of(http, number) for number in range(CELLS)} == {before}
        # The last node that takes cells cannot be drained: the question shows why.
        page.click(f"Drain {before}")
        page.fill(f"Type {before}", before)
        page.click("Drain")
        page.shows(f"No other node than {before} takes cells now.")
        page.press("Escape")
        page.click(f"Undo the drain of {target}")
        page.click("Undo the drain")
        page.shows(f"{target} may have cells again.")
        assert page.findings() == []
