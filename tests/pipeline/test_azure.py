"""Exports to Azure, in every format, to a server that speaks its protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg import catalog
from pyiceberg.utils.config import Config

from pipeline.export.part_settings import PartSettings
from pipeline.export.store import open_store, prove
from pipeline.export.verification import Verification
from tests.pipeline.exports import Exports
from tests.support.azurite import ACCOUNT, CONTAINER, KEY, azurite
from tests.support.small_segments import SmallSegments

#: How pyiceberg is told the address of a server other than Microsoft's.
_ADLS = "PYICEBERG_CATALOG__TOPICS__ADLS__"


@pytest.fixture
def azure(npm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server; the environment has its address and its key."""
    with azurite(npm, tmp_path) as address:
        host = address.removeprefix("http://")
        for name, value in {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": address,
            f"{_ADLS}BLOB_STORAGE_AUTHORITY": host,
            f"{_ADLS}BLOB_STORAGE_SCHEME": "http",
            f"{_ADLS}DFS_STORAGE_AUTHORITY": host,
            f"{_ADLS}DFS_STORAGE_SCHEME": "http",
        }.items():
            monkeypatch.setenv(name, value)
        # pyiceberg reads its configuration when it is imported.
        monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())
        yield


@pytest.mark.soak
@pytest.mark.usefixtures("azure")
def test_exports_in_every_format(broker: SmallSegments, tmp_path: Path) -> None:
    broker.append("azure", 700)
    account = f"abfss://{CONTAINER}@{ACCOUNT}.dfs.core.windows.net"
    for to, kind, where in (
        (f"az://{CONTAINER}/plain", "parquet", ""),
        (f"{account}/plain-too", "parquet", ""),
        (f"{account}/delta", "delta", ""),
        (f"{account}/iceberg", "iceberg", f"sqlite:///{tmp_path}/catalog.db"),
    ):
        prove(open_store(to))
        with Exports(broker.url, to) as exports:
            assert exports.export("azure", parts=PartSettings(kind=kind), catalog=where).records == 700
            assert exports.export("azure", parts=PartSettings(kind=kind), catalog=where).manifests == []
            verified = Verification(exports.store, "azure").run(exports.origin)
            assert (verified.compared, verified.problems) == (700, []), kind
