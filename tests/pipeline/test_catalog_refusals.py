"""Catalogs of Iceberg tables that do not answer."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from pipeline.errors import BadOption, StoreRefused
from pipeline.export.catalog_refusals import address_of
from pipeline.export.catalogs import Catalogs
from pipeline.export.iceberg import IcebergChain
from pipeline.export.store import open_store


def refused(catalog: str, folder: Path) -> str:
    """Why the table cannot be opened."""
    with pytest.raises((StoreRefused, BadOption)) as raised:
        IcebergChain(open_store(str(folder)), "t", Catalogs(catalog=catalog)).table()
    return str(raised.value)


@pytest.mark.parametrize("catalog", ["http://127.0.0.1:1", "thrift://127.0.0.1:1"])
def test_a_catalog_where_nothing_listens_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, catalog: str
) -> None:
    monkeypatch.setattr("pipeline.export.catalogs.PAUSE_S", 0.0)
    if catalog.startswith("thrift"):
        pytest.importorskip("thrift", reason="Hive's metastore needs the package thrift")
    assert f"the catalog {catalog} cannot be reached: nothing listens there. Check --catalog." in refused(
        catalog, tmp_path
    )


def test_a_metastore_that_is_silent_is_not_awaited_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("thrift", reason="Hive's metastore needs the package thrift")
    monkeypatch.setattr("pipeline.export.hive_catalog.CALL_MS", 50)
    with socket.create_server(("127.0.0.1", 0)) as server:
        said = refused(f"thrift://127.0.0.1:{server.getsockname()[1]}", tmp_path)
    assert "cannot be reached: it does not answer in time. Check --catalog." in said


@pytest.mark.parametrize(
    ("catalog", "what"),
    [
        ("thrift://127.0.0.1", "has no port: write thrift://host:9083"),
        ("absent", "pyiceberg's configuration has no catalog absent, or no URL of it"),
        ("sqlite:////nonexistent/x.db", "sqlite:////nonexistent/x.db: unable to open database file"),
    ],
)
def test_a_catalog_that_is_wrong_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, catalog: str, what: str
) -> None:
    monkeypatch.setattr("pipeline.export.catalogs.PAUSE_S", 0.0)
    assert what in refused(catalog, tmp_path)


def test_the_password_of_a_catalog_is_not_shown() -> None:
    assert address_of("postgresql://me:secret@db:5432/x") == "postgresql://db:5432/x"
    assert address_of("sqlite:///a/b.db") == "sqlite:///a/b.db"
