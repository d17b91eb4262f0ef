"""What one open console costs a broker in processor time, beside what an append of 100 records costs.

    .venv/bin/python -m tests.console.cost [--rounds 4] [--seconds 15]

One broker, and a console on its overview that is opened and closed in turns. The figures are those of the broker's
process alone, so they depend little on what else the machine does.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.console.built import console
from tests.support.live_server import LiveServer

PATIENCE_S = 120
APPENDS = 200
RECORDS = [{"data": {"number": number, "text": "x" * 80}} for number in range(100)]


def spent_ms(pid: int) -> float:
    """The processor time of all threads of a process so far, in user mode and in the kernel."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e6


def cost_ms(pid: int, work: Callable[[], None]) -> float:
    """What the process has spent while the work was going on."""
    before = spent_ms(pid)
    work()
    return spent_ms(pid) - before


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.console.cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=15)
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        parser.error("There is no chromium: install it.")
    with tempfile.TemporaryDirectory(prefix="topics-console-") as temporary:
        home = Path(temporary)
        with (
            LiveServer(home / "data") as server,
            httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http,
            console(chromium, server.url, home) as page,
        ):
            pid = server.process.pid

            def append() -> None:
                for _ in range(APPENDS):
                    http.post("/v0/topics/t", json={"records": RECORDS}).raise_for_status()

            append()
            append_ms = cost_ms(pid, append) / APPENDS
            second_ms: dict[bool, list[float]] = {False: [], True: []}
            for number in range(2 * options.rounds):
                is_open = number % 2 == 1
                if is_open:
                    page.visit(server.url)
                    page.shows("Nothing needs attention.")
                else:
                    page.call("Page.navigate", url="about:blank")
                second_ms[is_open].append(cost_ms(pid, lambda: time.sleep(options.seconds)) / options.seconds)
    closed, opened = (statistics.median(second_ms[is_open]) for is_open in (False, True))
    print(f"an append of 100 records: {append_ms:.2f} ms")
    print(f"a second: {closed:.2f} ms without, {opened:.2f} ms with an open console")
    print(f"throughput of a busy event loop with a console: {1 - (opened - closed) / 1000:.4f} x")


if __name__ == "__main__":
    main()
