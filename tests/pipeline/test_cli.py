"""`python -m pipeline`, by pyarrow alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.cli import app
from tests.support.small_segments import SmallSegments


def run(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    assert result.exit_code == status, result.output
    return result.output


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
    assert "0 problems; 30 records in 1 files, 30 compared" in run("verify", *url, "--topics", "cli.a", *to)
    Path(files[0]).write_bytes(b"")
    assert "PROBLEM: cli.a" in run("verify", "--topics", "cli.a", *to, status=1)


def test_a_topic_that_fails_does_not_keep_the_others_from_it(broker: SmallSegments, tmp_path: Path) -> None:
    to, url = ("--to", str(tmp_path / "out")), ("--url", broker.url)
    broker.append("good", 5)
    said = run("export", *url, "--topics", "absent,good", *to, "--engine", "arrow", status=1)
    assert "Error: absent: there is no such topic" in said
    assert "good" in run("files", "--topics", "good", *to)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--topics", "x"), "either --url or --path"),
        (("--topics", "x", "--url", "u", "--format", "xml"), "--format is parquet or json"),
        (("--topics", "x", "--url", "u", "--partition-by", "hour"), "--partition-by is date"),
        (("--topics", "x", "--url", "u", "--since", "soon"), "--since is a time"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, arguments: tuple[str, ...], what: str) -> None:
    assert what in run("export", *arguments, "--to", str(tmp_path), status=2)
