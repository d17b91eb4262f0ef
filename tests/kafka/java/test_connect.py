"""Kafka Connect, standalone: a file goes into a topic, and from there into another file."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka.java.programs import PATIENCE_S, Programs

LINES = [f"line {number}" for number in range(200)]


def written(path: Path, **settings: str) -> str:
    """A file of properties."""
    path.write_text("".join(f"{key.replace('_', '.')}={value}\n" for key, value in settings.items()))
    return str(path)


@pytest.mark.soak
def test_a_file_source_and_a_file_sink_copy_every_line(programs: Programs) -> None:
    folder, converter = programs.folder, "org.apache.kafka.connect.storage.StringConverter"
    source, sink = folder / "in.txt", folder / "out.txt"
    source.write_text("".join(f"{line}\n" for line in LINES))
    worker = written(
        folder / "worker", bootstrap_servers=programs.address, key_converter=converter, value_converter=converter,
        offset_storage_file_filename=str(folder / "offsets"), offset_flush_interval_ms="500",
        listeners="http://127.0.0.1:0", plugin_discovery="only_scan",
    )  # fmt: skip
    stream = "org.apache.kafka.connect.file.FileStream{}Connector"
    files = [
        written(folder / "source", name="source", connector_class=stream.format("Source"), file=str(source), topic="t"),
        written(folder / "sink", name="sink", connector_class=stream.format("Sink"), file=str(sink), topics="t"),
    ]
    command = programs.command("org.apache.kafka.connect.cli.ConnectStandalone", worker, *files)
    with (folder / "log").open("w") as log, subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as connect:
        try:
            until(lambda: read(sink) == LINES, folder)
            with source.open("a") as file:
                file.write("and one more\n")
            until(lambda: read(sink) == [*LINES, "and one more"], folder)
        finally:
            connect.terminate()


def read(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def until(is_so: Callable[[], bool], folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.1)
