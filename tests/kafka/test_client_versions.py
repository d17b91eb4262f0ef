"""Unmodified clients, old and new, do everything that they can do with a broker: `tests/kafka/walks`.

Installed clients always run. Other versions are installed into a separate environment in the soak tier, which needs a
package index.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.groups.server import Server

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120
INSTALL_S = 240
STEPS = ["administer", "produce", "produce_idempotently", "read_and_seek", "share", "commit_and_resume"]
#: Extras of kafka-python, whose names have changed.
CODECS = ("python-snappy", "lz4", "zstandard")
OTHERS = {
    "confluent 2.0.2": ("confluent-kafka==2.0.2",),
    "kafka_python 2.2.0": ("kafka-python==2.2.0", *CODECS),
    "kafka_python 2.0.2": ("kafka-python==2.0.2", *CODECS),
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "data", kafka_min_session_ms=1000) as server:
        yield server


def walked(python: Path | str, program: str, address: str) -> list[str]:
    """The output of a program that has completed its walk."""
    done = subprocess.run(
        [python, "-m", f"tests.kafka.walks.{program}", address],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("program", ["confluent", "aio", "kafka_python"])
def test_the_installed_clients_pass_the_walk(server: Server, program: str) -> None:
    version, *steps = walked(sys.executable, program, server.address)
    assert version.startswith("version ")
    assert steps == STEPS


@pytest.mark.soak
@pytest.mark.parametrize("named", OTHERS)
@pytest.mark.timeout(INSTALL_S + PATIENCE_S + 60)
def test_other_versions_of_the_clients_pass_the_walk(server: Server, tmp_path: Path, named: str) -> None:
    program, number = named.split()
    directory = tmp_path / "environment"
    venv.create(directory, with_pip=True)
    python = directory / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *OTHERS[named]]
    done = subprocess.run(install, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    assert done.returncode == 0, done.stderr
    assert walked(python, program, server.address) == [f"version {number}", *STEPS]


class Kcat:
    """kcat, with empty standard input by default."""

    def __init__(self, program: str, address: str) -> None:
        self._command = [program, "-b", address]

    def __call__(self, *arguments: str, given: bytes = b"") -> bytes:
        done = subprocess.run(
            [*self._command, *arguments], input=given, capture_output=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def test_kcat_passes_the_walk(server: Server, kcat: str) -> None:
    run = Kcat(kcat, server.address)
    lines = [b"k%d:v%d" % (number, number) for number in range(20)]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        run("-P", "-t", "t", "-K:", "-z", codec, "-H", f"codec={codec}", given=b"\n".join(lines))
    run("-P", "-t", "t", "-K:", "-X", "enable.idempotence=true", given=b"\n".join(lines))
    assert b'topic "t" with 1 partitions' in run("-L")
    found = run("-C", "-t", "t", "-e", "-f", "%o %k:%s %h\n").splitlines()
    heads = [b"codec=none", b"codec=gzip", b"codec=snappy", b"codec=lz4", b"codec=zstd", b""]
    assert found == [
        b"%d %s %s" % (turn * 20 + number, line, head)
        for turn, head in enumerate(heads)
        for number, line in enumerate(lines)
    ]
    assert run("-C", "-t", "t", "-o", "117", "-e", "-f", "%o\n").split() == [b"117", b"118", b"119"]
    assert run("-C", "-t", "t", "-o", "-2", "-e", "-f", "%o\n").split() == [b"118", b"119"]
    stamps = run("-C", "-t", "t", "-o", "60", "-c", "1", "-f", "%T")
    assert int(run("-Q", "-t", f"t:0:{stamps.decode()}").split()[-1]) == 60
    # A group commits as it reads, and the next member continues from there.
    settings = ("-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000")
    first = run(*settings, "-c", "50", "-f", "%o\n", "-G", "g", "t")
    assert first.split() == [b"%d" % number for number in range(50)]
    rest = run(*settings, "-c", "70", "-f", "%o\n", "-G", "g", "t")
    assert rest.split() == [b"%d" % number for number in range(50, 120)]
