"""When the console paints first: by the clock, and in processor time of the browser and the broker together.

    .venv/bin/python -m tests.console.paint

On a machine that does other work the clock says little. The processor time is an upper bound of the time on a machine
that does nothing else.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from tests.console.built import ConsolePage, console
from tests.support.live_server import LiveServer

VISITS = 7
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def spent_ms(*pids: int) -> float:
    """The processor time so far of all threads of these processes, and of the processes in their sessions."""
    total, wanted = 0, {*pids}
    for process in Path("/proc").iterdir():
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            if process.name.isdigit() and wanted.intersection((int(process.name), int(fields[3]))):
                total += sum(int(each.read_text().split()[0]) for each in process.glob("task/*/schedstat"))
        except (OSError, IndexError, ValueError):
            continue
    return total / 1e6


def visit(page: ConsolePage, url: str, *pids: int) -> tuple[float, float]:
    """(ms until the first paint, ms of processor time until it was seen)."""
    page.call("Page.navigate", url="about:blank")
    page.until("document.readyState === 'complete'")
    before = spent_ms(*pids)
    page.call("Page.navigate", url=f"{url}/console")
    page.until(f"{PAINT} !== undefined")
    return page.evaluate(PAINT), spent_ms(*pids) - before


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.console.paint", description=__doc__)
    parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        parser.error("There is no chromium: install it.")
    with tempfile.TemporaryDirectory(prefix="topics-console-") as temporary:
        home = Path(temporary)
        with LiveServer(home / "data") as server, console(chromium, server.url, home) as page:
            page.call("Network.enable")
            page.call("Network.setCacheDisabled", cacheDisabled=True)
            for _ in range(VISITS):
                clock, processor = visit(page, server.url, page.pid, server.process.pid)
                print(f"first paint after {clock:.0f} ms, with {processor:.0f} ms of processor time", flush=True)


if __name__ == "__main__":
    main()
