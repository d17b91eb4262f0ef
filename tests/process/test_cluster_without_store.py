"""Nodes of a cluster do not reach their bucket any more."""

from __future__ import annotations

import pytest

from tests.process.test_cluster import FAILED, running, store

pytestmark = [pytest.mark.timeout(600)]


def test_nothing_is_answered_while_the_store_is_away() -> None:
    with store() as server, running() as rig:
        rig.begin()
        path = f"/v0/topics/{rig.topics[0]}"
        assert rig.call(0, "POST", path, {"records": [{"data": 1}]})[0] == 200
        server.close()

        def is_silent() -> bool:
            try:
                rig.call(0, "GET", path)
            except FAILED:
                return True
            return False

        rig.until(is_silent)
        assert all(is_silent() for _ in range(5))
