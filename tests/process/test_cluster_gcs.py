"""A cluster in an emulator of Google Cloud Storage (`tests/support/fake_gcs.py` says how), whose nodes are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.test_cluster import kill_nodes, make_cluster, running
from tests.support.fake_gcs import BUCKET, BUILD_S, fake_gcs
from tests.unit.storage.cold.servers import google_credentials

pytestmark = [pytest.mark.soak, pytest.mark.timeout(BUILD_S + 600)]

URL = f"gs://{BUCKET}/clusters/one"


def test_no_acked_write_is_lost_when_whole_nodes_are_killed(
    go: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_gcs(go, tmp_path) as address:
        google_credentials(monkeypatch, address)
        make_cluster(URL)
        with running(URL) as rig:
            rig.begin()
            kill_nodes(rig, 2)
