"""The console of a cluster: a node is killed, and the page of another node says that it is gone."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest

from loadtest.killed_nodes import Cluster, parser
from loadtest.slow_s3 import SlowS3
from tests.console.built import ConsolePage
from tests.http.browser.chromium import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(6 * PATIENCE_S)]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    # A short path: it has unix sockets.
    with tempfile.TemporaryDirectory(prefix="tn") as folder, SlowS3() as store:
        cluster = Cluster(store, parser().parse_args(["--nodes", "2", "--cells", "2", "--dir", folder]))
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.close()


def test_a_node_that_is_gone_is_named_with_its_cells_going_to_the_other(page: ConsolePage, cluster: Cluster) -> None:
    stays, goes = cluster.nodes
    page.visit(f"http://{stays.host}:{stays.port}")
    page.shows("Nothing needs attention.")
    cluster.kill(goes)
    page.shows(f"Node {goes.name} is gone")
    page.click(f"Node {goes.name} is gone")
    page.shows("Sign of life")
    row = f"[...document.querySelectorAll('[role=row]')].find((row) => row.innerText.startsWith('{goes.name}'))"
    page.until(f"{row}?.innerText.includes('gone')")
    page.until(f"{row}?.innerText.includes('none')")  # of its cells
    cells = "[...document.querySelectorAll('[aria-label=Cells] .rows [role=row]')].map((row) => row.innerText)"
    page.until(f"{cells}.every((text) => text.includes('ready') && text.includes('{stays.name}'))")
