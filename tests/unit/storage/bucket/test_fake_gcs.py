"""The protocol against fake-gcs-server, an emulator of Google Cloud Storage (`tests/support/fake_gcs.py` says how)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.bucket import Unanswered, open_bucket, probe
from tests.support.fake_gcs import BUCKET, BUILD_S, fake_gcs
from tests.support.owners_in_turn import check_takeover
from tests.unit.storage.cold.servers import google_credentials

pytestmark = [pytest.mark.soak, pytest.mark.timeout(BUILD_S + 600)]


@pytest.fixture
def store(go: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment of a process that uses it."""
    with fake_gcs(go, tmp_path) as address:
        google_credentials(monkeypatch, address)
        yield


def test_the_probe_accepts_the_store_and_nothing_is_left(store: None) -> None:
    probe(lambda: open_bucket("gs", BUCKET, "probed"), "probe", "01" * 16)
    assert list(open_bucket("gs", BUCKET, "probed").names("probe/")) == []


def test_the_emulator_alone_is_refused(go: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no PUT of the XML API. When it has got one, nothing need be translated."""
    with fake_gcs(go, tmp_path, translated=False) as address:
        google_credentials(monkeypatch, address)
        with pytest.raises(Unanswered, match="status 400"):
            probe(lambda: open_bucket("gs", BUCKET, "probed"), "probe", "01" * 16)


async def test_an_owner_finds_what_the_one_before_has_acked(store: None, tmp_path: Path) -> None:
    await check_takeover(open_bucket("gs", BUCKET, "cluster"), tmp_path)
