"""The loads of every interface run, and slow health answers are reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import is_soak

ROOT = Path(__file__).resolve().parents[2]
#: With small log files, which take less time to make.
SMALL = ("--seconds", "0.5", "--topics", "20", "--set", f"WAL_FILE_BYTES={4 << 20}")
#: How many loads of each interface run; each run of the slow tier draws others.
DRAW = () if is_soak(os.environ) else ("--draw", "2")


def _run(folder: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "loadtest.interfaces", *SMALL, "--dir", str(folder), *arguments]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    print(ran.stdout, ran.stderr)
    return ran.returncode, ran.stdout


def test_each_load_runs_and_health_is_answered(tmp_path: Path) -> None:
    """No time is asserted: tests run side by side."""
    status, said = _run(tmp_path, "--most", "1000000", *DRAW)
    assert status == 0
    for interface in ("HTTP/1.1", "HTTP/2", "TLS", "SSE", "WebSocket", "Kafka", "Kafka TLS", "REST Proxy", "metrics"):
        assert f"\n{interface:<11} " in said
    assert "longer than" not in said


def test_a_load_over_the_limit_is_named(tmp_path: Path) -> None:
    # An answer may take 0 ms, without the time when no processor was free.
    status, said = _run(tmp_path, "--most=-1", "--only", "scrape")
    assert status == 1
    assert "longer than -1 ms: metrics, 100 clients scrape" in said
