"""`python -m pipeline` with pyarrow alone."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.pipeline.exports import aged
from tests.pipeline.exports import command as run
from tests.support.broker_process import PATIENCE_S, ROOT, TETHER
from tests.support.small_segments import SmallSegments


def test_an_export_from_the_command_line(broker: SmallSegments, tmp_path: Path) -> None:
    to, url = ("--to", str(tmp_path / "out")), ("--url", broker.url)
    for topic, count in (("cli.a", 30), ("cli.b", 20), ("other", 5)):
        broker.append(topic, count)
    first = run("export", *url, "--topics", "cli.*", *to, "--engine", "arrow")
    assert [line.split()[:2] for line in first.splitlines()[1:3]] == [["cli.a", "30"], ["cli.b", "20"]]
    files = run("files", "--topics", "cli.a", *to).split()
    assert len(files) == 1
    assert Path(files[0]).is_file()
    broker.append("cli.a", 7, first=30)
    assert [line.split()[:2] for line in run("status", *url, "--topics", "cli.*", *to).splitlines()[1:3]] == [
        ["cli.a", "7"],
        ["cli.b", "0"],
    ]
    assert "0 problems; 30 records in 1 file, 30 compared" in run("verify", *url, "--topics", "cli.a", *to)
    Path(files[0]).write_bytes(b"")
    assert "PROBLEM: cli.a" in run("verify", "--topics", "cli.a", *to, status=1)


def test_failing_topic_does_not_stop_the_other_topics(broker: SmallSegments, tmp_path: Path) -> None:
    to, url = ("--to", str(tmp_path / "out")), ("--url", broker.url)
    broker.append("good", 5)
    said = run("export", *url, "--topics", "absent,good", *to, "--engine", "arrow", status=1)
    assert "Error: absent: the topic does not exist" in said
    assert "good" in run("files", "--topics", "good", *to)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--topics", "x"), "either --url or --path"),
        (("--topics", "x", "--url", "u", "--format", "xml"), "--format must be delta, iceberg, parquet or json"),
        (("--topics", "x", "--url", "u", "--partition-by", "hour"), "--partition-by must be date"),
        (("--topics", "x", "--url", "u", "--partition-by", "date,topic"), "--partition-by must be date, date,hour,"),
        (("--topics", "x", "--url", "u", "--since", "soon"), "--since must be a time"),
        (("--topics", "x", "--url", "u", "--compact-every", "often"), "--compact-every must be a time like 90m"),
        (("--topics", "x", "--url", "u", "--retain", "7"), "--retain must be a time like 90m"),
        (("--topics", "x", "--url", "u", "--compact-every", "1d", "--retain", "1h"), "--retain must be at least 1d"),
        (("--topics", "x", "--url", "u", "--max-lag", "9", "--follow"), "--max-lag is for an export that ends"),
        (
            ("--topics", "x", "--engine", "arrow", "--url", "u", "--cold-path", "c"),
            "--cold-path is about a source without",
        ),
        (("--topics", "x", "--engine", "arrow", "--path", "p", "--token", "k"), "--token is about a broker"),
    ],
)
def test_contradictory_arguments_are_refused(tmp_path: Path, arguments: tuple[str, ...], what: str) -> None:
    assert what in run("export", *arguments, "--to", str(tmp_path), status=2)


def test_options_of_another_source_are_refused(broker: SmallSegments, tmp_path: Path) -> None:
    to = ("--to", str(tmp_path), "--topics", "placed")
    broker.append("placed", 1)
    run("export", *to, "--url", broker.url, "--engine", "arrow")
    assert "--cold-path is about" in run("verify", *to, "--url", broker.url, "--cold-path", "c", status=2)
    assert "Give either --url or --path" in run("verify", *to, "--cold-path", "c", status=2)
    assert "--cold-path is about" in run("status", *to, "--url", "http://u:1", "--cold-path", "c", status=2)
    assert "--token is about" in run("status", *to, "--path", "p", "--token", "k", status=2)


def test_a_key_in_the_environment_does_not_refuse_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_TOKEN", "of-a-broker")
    said = run("status", "--to", str(tmp_path), "--topics", "x", "--path", str(tmp_path / "none"), status=1)
    assert "none is neither a data directory nor a cold tier" in said


def test_headers_column_on_request(broker: SmallSegments, tmp_path: Path) -> None:
    broker.append("headed", 2)
    where = ("--url", broker.url, "--topics", "headed", "--to", str(tmp_path / "out"), "--engine", "arrow")
    run("export", *where, "--headers")
    [file] = run("files", "--topics", "headed", "--to", str(tmp_path / "out")).split()
    assert pq.ParquetFile(file).read(["headers"]).to_pydict()["headers"] == [
        [{"key": "fifth", "value": b"yes"}, {"key": "node", "value": b"node-0"}],
        [{"key": "node", "value": b"node-1"}],
    ]


def test_export_with_follow_runs_until_interrupted(broker: SmallSegments, tmp_path: Path) -> None:
    out, log = tmp_path / "out", tmp_path / "log"
    broker.append("followed", 5)
    command = [sys.executable, "-m", "pipeline", "export", "--url", broker.url, "--topics", "followed*", "--follow"]
    command += ["--format", "parquet"]
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*TETHER, *command, "--to", str(out), "--engine", "arrow"], cwd=ROOT, stdout=file, stderr=file
        )

    def exported(topic: str, number: int) -> Callable[[], bool]:
        def done() -> bool:
            assert process.poll() is None, log.read_text()
            return (out / "_topics" / topic / f"{number:020d}.json").exists()

        return done

    broker.until(exported("followed", 1))
    broker.append("followed", 3, first=5)
    broker.append("followed.later", 4)  # a topic that matches the pattern, and that did not exist before
    broker.until(exported("followed", 2))
    broker.until(exported("followed.later", 1))
    broker.until(lambda: "followed.later" in log.read_text())
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 130
    said = log.read_text()
    assert "Interrupted. Completed files are valid" in said
    # A round without new records prints nothing.
    assert [line.split()[:2] for line in said.splitlines() if line.startswith("followed")] == [
        ["followed", "5"],
        *sorted([["followed", "3"], ["followed.later", "4"]]),
    ]
    assert len(run("files", "--topics", "followed*", "--to", str(out)).split()) == 3


def test_versions_tell_which_seqs_they_added(broker: SmallSegments, tmp_path: Path) -> None:
    to = ("--to", str(tmp_path / "out"))
    for kind in ("delta", "iceberg", "parquet"):
        topic = f"versions.{kind}"
        where = ("--url", broker.url, "--topics", topic, *to, "--engine", "arrow")
        broker.append(topic, 12)
        run("export", *where, "--format", kind, "--max-records", "5")
        run("export", *where)
        said = run("versions", "--topics", topic, *to).splitlines()
        added = [line.split()[3:] for line in said if " append " in line]
        assert added == [["append", "5", "0:", "1-5"], ["append", "7", "0:", "6-12"]]
        opened = said[0].removeprefix(f"{topic}: ").removeprefix("file://")
        assert opened.endswith(".metadata.json") == (kind == "iceberg")
        assert Path(opened).exists()


def test_upkeep_beside_an_export(broker: SmallSegments, tmp_path: Path) -> None:
    to = ("--to", str(tmp_path / "out"))
    where = ("--url", broker.url, "--topics", "upkeep", *to, "--engine", "arrow")
    broker.append("upkeep", 10)
    for _ in range(2):
        run("export", *where, "--max-records", "5")
    assert "upkeep: 2 files became 1, 10 records rewritten; 0 files removed" in run(
        "export", *where, "--compact-every", "1h"
    )
    assert "became" not in run("export", *where, "--compact-every", "1h")
    assert "upkeep: 0 files removed" in run("vacuum", "--topics", "upkeep", *to)
    assert "--retain must be at least 1d" in run("vacuum", "--topics", "upkeep", *to, "--retain", "1h", status=2)


def test_compaction_with_vacuum_removes_files_that_it_replaced_before(broker: SmallSegments, tmp_path: Path) -> None:
    table, to = tmp_path / "out" / "tidied", ("--to", str(tmp_path / "out"))
    broker.append("tidied", 10)
    for _ in range(2):
        run("export", "--url", broker.url, "--topics", "tidied", *to, "--engine", "arrow", "--max-records", "5")
    refused = run("compact", "--topics", "tidied", *to, "--vacuum", "--retain", "1h", status=2)
    assert "--retain must be at least 1d" in refused
    assert "2 files became 1, 10 records rewritten; 0 files removed" in run(
        "compact", "--topics", "tidied", *to, "--vacuum"
    )
    aged(table, 8)
    assert "1 file became 1, 0 records rewritten; 0 files removed" in run(
        "compact", "--topics", "tidied", *to, "--vacuum", "--retain", "9d"
    )
    assert len([*table.rglob("*.parquet")]) == 3
    assert "; 2 files removed" in run("compact", "--topics", "tidied", *to, "--vacuum")
    assert len([*table.rglob("*.parquet")]) == 1
    assert "0 problems; 10 records in 1 file, 10 compared" in run(
        "verify", "--url", broker.url, "--topics", "tidied", *to
    )


def test_a_topic_that_cannot_be_compacted_does_not_stop_the_others(broker: SmallSegments, tmp_path: Path) -> None:
    to = ("--to", str(tmp_path / "out"))
    for topic, kind in (("first", "json"), ("second", "delta")):
        broker.append(topic, 5)
        run("export", "--url", broker.url, "--topics", topic, *to, "--engine", "arrow", "--format", kind)
    said = run("compact", "--topics", "*", *to, "--vacuum", status=1)
    assert "Error: first: it is exported as json" in said
    assert "second: 1 file became 1, 0 records rewritten; 0 files removed" in said


def test_an_export_that_falls_behind_fails_after_its_work(broker: SmallSegments, tmp_path: Path) -> None:
    where = ("--url", broker.url, "--topics", "slow*", "--to", str(tmp_path / "out"), "--engine", "arrow")
    broker.append("slow", 20)
    broker.append("slow.not", 5)
    said = run("export", *where, "--max-records", "5", "--max-lag", "10", status=1)
    assert "Error: slow: 15 durable seqs are not exported, more than --max-lag 10" in said
    assert "slow.not:" not in said
    assert [line.split()[:2] for line in said.splitlines() if line.startswith("slow")] == [
        ["slow", "5"],
        ["slow.not", "5"],
    ]
    assert "Error" not in run("export", *where, "--max-records", "5", "--max-lag", "10")


@pytest.mark.parametrize("name", ["files", "verify", "compact", "vacuum", "versions", "widen"])
def test_a_command_without_an_export_makes_nothing(tmp_path: Path, name: str) -> None:
    absent, file = tmp_path / "absent", tmp_path / "file"
    file.write_text("")
    more = ("--value-schema", "id bigint") if name == "widen" else ()
    said = run(name, "--topics", "t", "--to", str(absent), *more, status=2)
    assert said == f"Error: Nothing is exported to {absent}: check --to.\n"
    assert not absent.exists()
    assert f"--to {file} is a file" in run(name, "--topics", "t", "--to", str(file), *more, status=2)
    assert "--to is empty" in run(name, "--topics", "t", "--to", "", *more, status=2)
    assert "--to s3:// names no bucket: write s3://BUCKET/path" in run(
        name, "--topics", "t", "--to", "s3://", *more, status=2
    )


def test_the_status_of_no_export_makes_nothing(broker: SmallSegments, tmp_path: Path) -> None:
    broker.append("unexported", 1)
    said = run("status", "--url", broker.url, "--topics", "unexported", "--to", str(tmp_path / "absent"))
    assert "never exported" in said
    assert not (tmp_path / "absent").exists()


def test_wrong_input_is_refused_by_its_option(broker: SmallSegments, tmp_path: Path) -> None:
    to = ("--to", str(tmp_path / "out"))
    export = ("export", "--url", broker.url, "--engine", "arrow", *to)
    broker.append("asked", 1)
    run(*export, "--topics", "asked")
    assert "No exported topic matches x*. Exported there: asked." in run("files", "--topics", "x*", *to, status=2)
    assert "--topics names no topic" in run(*export, "--topics", " ", status=2)
    assert "'a/b' cannot be a topic's name" in run(*export, "--topics", "a/b", status=1)
    assert "--since 0001-01-01 is before 1970" in run(*export, "--topics", "asked", "--since", "0001-01-01", status=2)
    assert "--date must be a date like" in run("compact", "--topics", "asked", *to, "--date", "yesterday", status=2)
    assert "--retain must be at most" in run("vacuum", "--topics", "asked", *to, "--retain", "99999d", status=2)
    spark = ("export", "--url", broker.url, "--topics", "asked", *to, "--spark-master", "local(2)")
    assert "--spark-master must be like local[2]" in run(*spark, status=2)
    assert "--catalog and --namespace are about Iceberg tables" in run(
        *export, "--topics", "asked", "--catalog", "thrift://x:1", status=1
    )
    widen = ("widen", "--topics", "asked", *to, "--value-schema")
    assert "the file none cannot be read: No such file or directory." in run(*widen, "@none", status=2)


@pytest.mark.parametrize(("kind", "what"), [("delta", "DeltaError: "), ("iceberg", "metadata")])
def test_a_damaged_table_is_named_with_the_reason(broker: SmallSegments, tmp_path: Path, kind: str, what: str) -> None:
    to = ("--to", str(tmp_path / "out"))
    broker.append("broken", 1)
    run("export", "--url", broker.url, "--engine", "arrow", *to, "--topics", "broken", "--format", kind)
    for file in (tmp_path / "out" / "broken").rglob("*.json"):
        if kind == "delta":
            file.write_text("")
        else:
            file.unlink()
    said = run("files", "--topics", "broken", *to, status=1)
    assert "out/broken cannot be opened: " in said
    assert what in said.partition("cannot be opened: ")[2]


@pytest.mark.parametrize("option", ["--to", "--path"])
def test_a_cluster_needs_absolute_locations(option: str) -> None:
    given = {"--to": "s3://bucket/x", "--path": "/data"} | {option: "some/where"}
    arguments = [each for pair in given.items() for each in pair]
    said = run("export", "--topics", "x", *arguments, "--spark-master", "spark://127.0.0.1:7077", status=2)
    assert f"{option} some/where is relative, but the tasks of spark://127.0.0.1:7077 run in other directories" in said


@pytest.mark.parametrize("missing", ["pyarrow", "numpy"])
def test_missing_extra_is_named_in_the_error(missing: str) -> None:
    program = f"import runpy, sys; sys.modules[{missing!r}] = None; runpy.run_module('pipeline', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        f"{missing} is missing. Install the extra `pipeline`: pip install 'topics-broker[pipeline]'\n"
    )
