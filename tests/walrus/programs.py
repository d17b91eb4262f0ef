"""Programs that embed an engine, run as separate processes. The tests are about how they end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.support.broker_process import PATIENCE_S, ROOT, environment


@contextmanager
def program(code: str, data_dir: Path, *arguments: object) -> Generator[subprocess.Popen[str]]:
    """Run the program with the path of the data directory and the arguments. It has ended after the block."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, str(data_dir), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(data_dir),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line that it prints; '' at its end."""
    assert process.stdout is not None
    return process.stdout.readline().strip()
