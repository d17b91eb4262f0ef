"""The measurement of the engine as a library, in every durability class."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("more", [(), ("--blocking",)], ids=["async", "blocking"])
@pytest.mark.parametrize("classes", [("ephemeral",), ("ephemeral", "memory"), ("disk", "fsync")], ids="-".join)
def test_every_class_is_written_and_read_through_consumers_if_supported(
    tmp_path: Path, classes: tuple[str, ...], more: tuple[str, ...]
) -> None:
    size = ("--topics", "2", "--batch", "100", "--seconds", "0.1", "--dir", str(tmp_path))
    command = [sys.executable, "-m", "loadtest.embedded", *size, "--json", "--durability", *classes, *more]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (made.returncode, made.stderr) == (0, "")
    figures = msgspec.json.decode(made.stdout)
    names = [each["name"] for each in figures]
    reads = [name for name in names if name.startswith("read_batch")]
    assert len(names) - len(reads) == len(classes)
    assert bool(reads) is (classes != ("ephemeral",))
    assert all(each["records_per_s"] > 0 for each in figures)
    assert not [*tmp_path.iterdir()], "what was written is gone"
