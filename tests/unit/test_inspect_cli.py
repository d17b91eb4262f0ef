"""The command line of dump and verify: exit codes and error messages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from storage.__main__ import main
from storage.platform.posix import PosixFileSystem
from tests.unit.format.hand_written import append, create, data_dir, wal_file


class Result(NamedTuple):
    """The result of a command line run."""

    returncode: int
    stdout: str
    stderr: str


class Run:
    """The command line, in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str | Path) -> Result:
        try:
            code = main([str(each) for each in arguments])
        except SystemExit as left:
            code = left.code
        assert isinstance(code, int)
        return Result(code, *self._capsys.readouterr())


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return data_dir(tmp_path / "data", create() + append(1))


@pytest.mark.parametrize("command", ["dump", "verify"])
def test_a_sound_directory_gives_0(run: Run, root: Path, command: str) -> None:
    result = run(command, root)
    assert (result.returncode, result.stderr) == (0, "")


def test_damage_gives_1(run: Run, root: Path) -> None:
    (root / "FORMAT").write_text("?")
    assert run("verify", root).returncode == 1


@pytest.mark.parametrize("command", ["dump", "verify"])
def test_a_folder_that_is_no_data_directory_gives_2_and_a_sentence(run: Run, tmp_path: Path, command: str) -> None:
    result = run(command, tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"{tmp_path} is not a data directory: it has no file FORMAT.\n"


def test_an_absent_directory_gives_2_and_a_sentence(run: Run, tmp_path: Path) -> None:
    result = run("dump", tmp_path / "absent")
    assert (result.returncode, result.stderr) == (2, f"{tmp_path / 'absent'} is not a directory.\n")


@pytest.mark.parametrize("arguments", [(), ("repair", "x"), ("dump",), ("verify", "x", "--no-such")])
def test_wrong_usage_gives_2(run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("usage: python -m storage")


def test_an_absent_file_gives_2_and_a_sentence(run: Run, root: Path) -> None:
    result = run("dump", root, "--file", "wal-9.log")
    assert (result.returncode, result.stderr) == (
        2,
        f"No log file, snapshot or segment (.data) in {root} matches 'wal-9.log'.\n",
    )


def test_help_names_flags_and_exit_codes(run: Run) -> None:
    assert "t tag, n node, d durable" in " ".join(run("dump", "--help").stdout.split())
    assert "Exit code: 0 nothing wrong;" in " ".join(run("verify", "--help").stdout.split())


def test_an_unreadable_file_gives_1_and_a_sentence(run: Run, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: PosixFileSystem, path: str, **options: bool) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(PosixFileSystem, "open", refuse)
    assert run("dump", root) == (1, "", f"Cannot read {root}/FORMAT: Permission denied.\n")


def test_the_package_runs_as_a_module(root: Path) -> None:
    result = subprocess.run([sys.executable, "-m", "storage", "verify", str(root)], capture_output=True, check=False)
    assert (result.returncode, result.stderr) == (0, b"")


def test_progress_is_shown_on_a_terminal(root: Path) -> None:
    wal_file(root).write_bytes(create() + b"".join(append(seq) for seq in range(1, 1000)))
    ours, theirs = os.openpty()
    result = subprocess.run(
        [sys.executable, "-m", "storage", "verify", str(root)], stdout=subprocess.PIPE, stderr=theirs, check=True
    )
    os.close(theirs)
    shown = os.read(ours, 4096).decode()
    os.close(ours)
    assert "checking: 100 %" in shown
    assert shown.endswith("\r\033[K")
    assert result.stdout.startswith(b"no problem")
