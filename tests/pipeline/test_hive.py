"""Iceberg tables in the catalog of Hive's metastore."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("thrift", reason="Hive's metastore needs the package thrift")

from hive_metastore.ThriftHiveMetastore import Client
from pyiceberg import catalog
from pyiceberg.catalog import hive
from pyiceberg.utils.config import Config
from thrift.Thrift import TApplicationException

from pipeline.errors import BadOption, StoreRefused
from pipeline.export.iceberg import IcebergChain
from pipeline.export.maintenance import DAY_S, compact, status, vacuum
from pipeline.export.part_settings import PartSettings
from pipeline.export.verification import Verification
from tests.pipeline.exports import Exports, ended_pid
from tests.pipeline.test_iceberg_stores import exported
from tests.pipeline.test_tables import read, typed
from tests.pipeline.test_tables_killed import RUNS, Steps, processes, seqs
from tests.support.broker_process import PATIENCE_S, ROOT
from tests.support.hive_metastore import HIVE2, HiveMetastore, hive_metastore
from tests.support.small_segments import SmallSegments

ICEBERG = PartSettings(kind="iceberg")
#: What pyiceberg reads: the version of the metastore, and that it is to wait for a lock only shortly.
SETTINGS = {HIVE2: "true", "PYICEBERG_CATALOG__TOPICS__LOCK_CHECK_MAX_WAIT_TIME": "0.1"}
#: Calls of the metastore that change something.
CALLS = ("create_database", "create_table", "lock", "alter_table_with_environment_context", "unlock")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveMetastore]:
    """As Hive is without settings, the metastore removes no lock that is left."""
    with hive_metastore(tmp_path_factory.mktemp("hive") / "metastore") as served:
        yield served


@pytest.fixture
def metastore(served: HiveMetastore, monkeypatch: pytest.MonkeyPatch) -> HiveMetastore:
    """A metastore; the environment says of which version it is."""
    prepare(monkeypatch)
    return served


@pytest.fixture
def reaping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HiveMetastore]:
    """The same, but the metastore removes locks that are left, after two seconds."""
    prepare(monkeypatch)
    settings = {
        "hive_compactor_initiator_on": "true",
        "hive_support_concurrency": "true",
        "hive_txn_manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
        "hive_txn_timeout": "2s",
        "hive_timedout_txn_reaper_start": "1s",
        "hive_timedout_txn_reaper_interval": "1s",
    }
    with hive_metastore(tmp_path / "metastore", **settings) as served:
        yield served


def prepare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    # pyiceberg reads its configuration when it is imported.
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())


def test_a_table_in_hive(broker: SmallSegments, metastore: HiveMetastore, tmp_path: Path) -> None:
    """With all that is done with a table, over its life."""
    to, where = str(tmp_path / "out"), metastore.url
    exported(broker, "in-hive", to, where)
    with Exports(broker.url, to) as exports:
        chain = exports.chain("in-hive")
        assert isinstance(chain, IcebergChain)
        assert [each.kind for each in chain.versions()] == ["append", "append", "append", "compact", "append"]
        shown = status(exports.store, "in-hive", exports.origin)
        assert (shown.lag, shown.rows, shown.state) == (0, 65, "up to date")
        # A column is added, and then widened.
        for first, ddl in ((65, "n int"), (70, "n bigint, m double")):
            broker.append("in-hive", 5, first=first)
            assert exports.export("in-hive", parts=ICEBERG, catalog=where, values=typed(ddl)).records == 5
        assert [row["n"] for row in read(exports, "in-hive")] == [None] * 65 + list(range(65, 75))
        compact(exports.store, "in-hive", version="test")
        later = time.time() + 8 * DAY_S
        for file in Path(to, "in-hive").rglob("*.*"):
            os.utime(file, (later - 3 * DAY_S, later - 3 * DAY_S))
        before = {file.name for file in Path(to, "in-hive").rglob("part-*")}
        with pytest.MonkeyPatch.context() as clock:
            clock.setattr("pipeline.export.iceberg.time.time", lambda: later)
            assert vacuum(exports.store, "in-hive", retain_s=7 * DAY_S, now_s=later) > 0
        after = {file.name for file in Path(to, "in-hive").rglob("part-*")}
        assert after < before
        assert [row["seq"] for row in read(exports, "in-hive")] == list(range(1, 76))
        found = Verification(exports.store, "in-hive").run(exports.origin)
        assert (found.compared, found.problems) == (75, [])
    assert metastore.locks() == []


@pytest.mark.parametrize("compares", [True, False])
def test_of_two_commits_the_one_whose_lock_has_timed_out_fails(
    broker: SmallSegments, metastore: HiveMetastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compares: bool
) -> None:
    """A run that stands still after it has its lock does not undo what others have committed meanwhile: because the
    metastore compares, or because the run looks at its lock once more, as it must with an old metastore."""
    topic = f"stood-still-{compares}"
    broker.append(topic, 10)
    with Exports(broker.url, str(tmp_path / "out")) as exports:
        exports.export(topic, parts=ICEBERG, catalog=metastore.url)
        broker.append(topic, 10, first=10)
        stood: list[bool] = []

        def stand_still() -> None:
            if stood:
                return
            stood.append(True)
            (held,) = metastore.locks()
            metastore.unlock(held.lockid)
            with Exports(broker.url, exports.job.to) as other:
                assert other.export(topic, parts=ICEBERG, catalog=metastore.url).manifests == [2]
                broker.append(topic, 10, first=20)
                assert other.export(topic, parts=ICEBERG, catalog=metastore.url).manifests == [3]

        alter, write = Client.alter_table_with_environment_context, hive.HiveCatalog._write_metadata  # pyright: ignore

        def altered(client: Any, dbname: str, tbl_name: str, new_tbl: Any, environment_context: Any) -> None:
            if compares:
                stand_still()
            else:
                environment_context.properties.pop("expected_parameter_key")
            alter(client, dbname, tbl_name, new_tbl, environment_context)

        def written(*arguments: Any, **options: Any) -> None:
            write(*arguments, **options)
            if not compares:
                stand_still()

        monkeypatch.setattr(Client, "alter_table_with_environment_context", altered)
        monkeypatch.setattr(hive.HiveCatalog, "_write_metadata", staticmethod(written))
        outcome = exports.export(topic, parts=ICEBERG, catalog=metastore.url, pid=ended_pid())
        assert (outcome.records, outcome.lost_races) == (0, 1)
        assert [row["seq"] for row in read(exports, topic)] == list(range(1, 31))
        assert exports.chain(topic).numbers() == [1, 2, 3]


def test_a_table_whose_writer_was_killed_is_locked_until_its_lock_is_removed(
    broker: SmallSegments, metastore: HiveMetastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.append("locked", 10)
    to = str(tmp_path / "out")
    with Exports(broker.url, to) as exports:
        exports.export("locked", parts=ICEBERG, catalog=metastore.url)
        broker.append("locked", 10, first=10)
        assert killed_in_hive("export", broker.url, to, "locked", metastore.url, "alter_table") is None
        assert [each.tablename for each in metastore.locks()] == ["locked"]
        # The wait in all is that of many tries.
        monkeypatch.setattr("pipeline.export.tables._TRIES", 2)
        for values in (None, typed("n int")):
            with pytest.raises(StoreRefused, match=r"locked in Hive's metastore, by a writer .* was killed"):
                exports.export("locked", parts=ICEBERG, catalog=metastore.url, values=values)
        (left,) = metastore.locks()
        metastore.unlock(left.lockid)
        assert exports.export("locked", parts=ICEBERG, catalog=metastore.url).records == 10
        assert [row["seq"] for row in read(exports, "locked")] == list(range(1, 21))


def test_hive_2_without_its_setting_is_named(
    broker: SmallSegments, metastore: HiveMetastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.export.tables._TRIES", 2)
    broker.append("unset", 5)
    with Exports(broker.url, str(tmp_path / "out")) as exports:
        with monkeypatch.context() as unset:
            unset.delenv(HIVE2)
            unset.setattr(catalog, "_ENV_CONFIG", Config())
            with pytest.raises(StoreRefused, match=r"the metastore is of Hive 2.*HIVE2_COMPATIBLE=true"):
                exports.export("unset", parts=ICEBERG, catalog=metastore.url)
        with pytest.raises(StoreRefused, match=r"the metastore is of Hive 2.*drop the table"):
            exports.export("unset", parts=ICEBERG, catalog=metastore.url)
        catalog.load_catalog("topics", type="hive", uri=metastore.url).drop_table(("topics", "unset"))
        assert exports.export("unset", parts=ICEBERG, catalog=metastore.url).records == 5


def test_a_bucket_that_the_metastore_cannot_reach_is_named(
    broker: SmallSegments, metastore: HiveMetastore, bucket: str
) -> None:
    """It makes the folder of a table itself. PySpark has no file system for S3."""
    broker.append("unreached", 5)
    with (
        Exports(broker.url, bucket) as exports,
        pytest.raises(StoreRefused, match=r"\(MetaException\): the metastore has no file system for s3://"),
    ):
        exports.export("unreached", parts=ICEBERG, catalog=metastore.url)


def test_a_metastore_without_the_call_that_hive_4_has_removed(
    broker: SmallSegments, metastore: HiveMetastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def removed(*_: object, **__: object) -> None:
        raise TApplicationException(TApplicationException.UNKNOWN_METHOD, "Invalid method name: 'get_table'")

    monkeypatch.setattr(Client, "get_table", removed)
    exported(broker, "without-get-table", str(tmp_path / "out"), metastore.url)


def test_topics_that_differ_only_in_case_need_another_namespace(
    broker: SmallSegments, metastore: HiveMetastore, tmp_path: Path
) -> None:
    broker.append("Cased", 5)
    broker.append("cased", 5)
    with Exports(broker.url, str(tmp_path / "out")) as exports:
        assert exports.export("Cased", parts=ICEBERG, catalog=metastore.url).records == 5
        with pytest.raises(BadOption, match="is not an export of cased: give another --namespace"):
            exports.export("cased", parts=ICEBERG, catalog=metastore.url)
        assert [row["seq"] for row in read(exports, "Cased")] == list(range(1, 6))


# -- other processes -------------------------------------------------------------------------------------------------


def run(what: str, url: str, to: str, topic: str, where: str, at: int | str, steps: Any) -> None:
    """In the child: an export or a compaction, killed at a step, or at its first call of the metastore of a name. Tells
    the number of steps if it is not."""
    os.environ |= SETTINGS
    catalog._ENV_CONFIG = Config()  # pyright: ignore[reportPrivateUsage]
    counted = Steps(at if isinstance(at, int) else 1, to)
    calls = [(Client, name) for name in CALLS if isinstance(at, int) or name.startswith(at)]
    if isinstance(at, int):
        counted.install(*calls)
    else:
        counted.wrap(*calls)
    with Exports(url, to) as exports:
        if what == "export":
            exports.export(topic, parts=ICEBERG, catalog=where)
        else:
            compact(exports.store, topic, version="test")
    steps.put(counted.count)


def killed_in_hive(what: str, url: str, to: str, topic: str, where: str, at: int | str) -> int | None:
    """None: the run was killed there; else the number of its steps."""
    fresh = processes()
    steps = fresh.SimpleQueue()
    process = fresh.Process(target=run, args=(what, url, to, topic, where, at, steps))
    process.start()
    process.join(4 * PATIENCE_S)
    assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
    return None if process.exitcode else steps.get()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_killed_at_every_step_and_run_again(
    broker: SmallSegments, reaping: HiveMetastore, exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an export that creates its table, of one that adds to it, and of a compaction. The metastore removes the locks
    that are left."""
    monkeypatch.chdir(ROOT)
    to, where = exports.job.to, reaping.url
    for what in ("create", *RUNS):
        counts: Counter[str] = Counter()
        kills = locked = 0
        ended = False
        while not ended:
            topic = f"{what}-{kills}" if what == "create" else f"{what}-swept"
            for _ in range(1 if what == "create" else 2):
                if counts[topic]:
                    exports.export(topic, parts=ICEBERG, catalog=where)
                broker.append(topic, 5, first=counts[topic])
                counts[topic] += 5
            call = "compact" if what == "compact" else "export"
            ended = killed_in_hive(call, broker.url, to, topic, where, kills + 1) is not None
            kills += not ended
            locked += reaping.locks() != []
            every = list(range(1, counts[topic] + 1))
            assert what == "create" or seqs(exports, topic) in (every, every[:-5])
            exports.export(topic, parts=ICEBERG, catalog=where)
            assert seqs(exports, topic) == every
        numbers = exports.chain(topic).numbers()
        assert numbers == list(range(1, len(numbers) + 1))
        assert kills >= 8
        assert locked
        print(f"{what}: {kills} kills, {locked} locks left, {len(numbers)} manifests")


def test_two_processes_at_once(
    broker: SmallSegments, metastore: HiveMetastore, exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    fresh = processes()
    count = 0
    for _ in range(3):
        broker.append("both", 50, first=count)
        count += 50
        steps = fresh.SimpleQueue()
        arguments = ("export", broker.url, exports.job.to, "both", metastore.url, 0, steps)
        pair = [fresh.Process(target=run, args=arguments) for _ in range(2)]
        for each in pair:
            each.start()
        for each in pair:
            each.join(2 * PATIENCE_S)
            assert each.exitcode == 0
        assert seqs(exports, "both") == list(range(1, count + 1))
    assert metastore.locks() == []
