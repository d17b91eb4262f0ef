"""The mixed load of loadtest/locustfile.py, run as its users run it: it completes, and its ledger is checked."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.broker_process import ROOT, BrokerProcess, environment

FIGURES = re.compile(
    r"Ledger: lost (\d+), doubled (\d+), out of order (\d+) of (\d+) acknowledged,"
    r" (\d+) delivered \((\d+) pushed\), (\d+) jobs done"
)


def run(directory: Path, broker: BrokerProcess, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "locust",
                "-f",
                str(ROOT / "loadtest/locustfile.py"),
                "--headless",
                "--only-summary",
            ),
            *("-u", "20", "-r", "40", "-t", "6s", "--host", f"http://127.0.0.1:{broker.port}"),
            *("--html", str(directory / "report.html"), *options),
        ],
        cwd=directory,
        env=environment(directory),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
    )


def test_a_mixed_load_has_no_lost_duplicate_or_reordered_record(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        broker.start()
        ended = run(tmp_path, broker)
        assert ended.returncode == 0, ended.stdout
        found = FIGURES.search(ended.stdout)
        assert found, ended.stdout
        lost, doubled, disordered, acknowledged, delivered, pushed, done = map(int, found.groups())
        assert (lost, doubled, disordered) == (0, 0, 0)
        assert acknowledged > 50
        assert delivered > pushed > 50
        assert done > 5
        assert "LEDGER" in (tmp_path / "report.html").read_text()
        assert broker.ok("GET", "/v0/topics")["topics"] == []
