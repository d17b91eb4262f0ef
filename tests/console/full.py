"""The console of a very full broker: 5,000 topics, 10,000 consumers, 64 partitions, records of 1 MB, 20,000 jobs.

    .venv/bin/python -m tests.console.full [--topics 5000] [--consumers 10000]

Fills a broker of its own, opens the pages in Chromium, and prints when the first paint was, how long each page took to
show, how long the longest frame was while it was scrolled, and the memory of the page. A separate process asks the
broker for health meanwhile.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from loadtest.health_probe import Prober
from tests.console.built import ConsolePage, console
from tests.support.live_server import LiveServer

PATIENCE_S = 300
#: Scrolls the longest list of the page from its top to its end in 60 frames. Answers the longest frame in ms.
SCROLL = """
new Promise((done) => {
  const lists = [...document.querySelectorAll(".rows.long, .records")];
  const list = lists.sort((a, b) => b.scrollHeight - a.scrollHeight)[0];
  if (list === undefined) return done(0);
  let [frames, last, worst] = [0, performance.now(), 0];
  const step = (now) => {
    worst = Math.max(worst, now - last);
    last = now;
    list.scrollTop = (list.scrollHeight * frames) / 60;
    if (++frames > 60) done(Math.round(worst));
    else requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})
"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def fill(url: str, topics: int, consumers: int) -> None:
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as http, ThreadPoolExecutor(8) as pool:

        def put(path: str, body: dict[str, Any]) -> None:
            http.put(path, json=body).raise_for_status()

        def append(topic: str, records: list[Any]) -> None:
            http.post(f"/v0/topics/{topic}", json={"records": records}).raise_for_status()

        def topic(number: int) -> None:
            put(f"/v0/topics/full.topic-{number:05d}", {"durability": "memory"})

        def consumer(number: int) -> None:
            put(f"/v0/topics/wide/consumers/reader-{number // 64:05d}?partition={number % 64}", {})

        list(pool.map(topic, range(topics)))
        put("/v0/topics/wide", {"partitions": 64})
        append("wide", [{"data": n} for n in range(100)])
        list(pool.map(consumer, range(consumers)))
        for number in range(20):
            append("large", [{"data": {"number": number, "text": "x" * 1_000_000}}])
        put("/v0/topics/jobs", {"type": "queue"})
        for _ in range(20):
            append("jobs", [{"data": n} for n in range(1000)])


def pages(topics: int, consumers: int) -> tuple[tuple[str, str, str], ...]:
    return (
        ("topics", "#/topics", f"of {topics + 3:,} topics"),
        ("consumers", "#/consumers", f"{consumers:,} positions"),
        ("64 partitions", "#/topics/wide?tab=partitions", "Last write"),
        ("consumers of 64 partitions", "#/topics/wide?tab=consumers", "reader-00000"),
        ("records of 1 MB", "#/topics/large", "xxxx"),
        ("queues", "#/queues", "jobs"),
        ("jobs", "#/queues/jobs", "Ready 20,000"),
        ("overview", "#/", "Nothing needs attention."),
    )


def look(page: ConsolePage, name: str, address: str, shows: str) -> None:
    page.open("#/nowhere", "There is no such page.")
    script = (
        f"(async () => {{ const begun = performance.now(); location.hash = {json.dumps(address)};"
        f"while (!document.body.innerText.includes({json.dumps(shows)}) && performance.now() - begun < 120000)"
        "await new Promise((done) => setTimeout(done, 20)); return Math.round(performance.now() - begun); })()"
    )
    took = page.evaluate(script)
    worst = page.evaluate(SCROLL)
    page.call("HeapProfiler.collectGarbage")
    heap = {each["name"]: each["value"] for each in page.call("Performance.getMetrics")["metrics"]}["JSHeapUsedSize"]
    rows = page.evaluate("document.querySelectorAll('*').length")
    print(f"{name:28} {took:7,} ms {worst:7,} ms {heap / 1e6:7.1f} MB {rows:7,} elements", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.console.full", description=__doc__)
    parser.add_argument("--topics", type=int, default=5000)
    parser.add_argument("--consumers", type=int, default=10_000)
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        parser.error("There is no chromium: install it.")
    with tempfile.TemporaryDirectory(prefix="topics-console-") as temporary:
        home = Path(temporary)
        with LiveServer(home / "data") as server, console(chromium, server.url, home) as page:
            paints: list[float] = []
            for _ in range(5):
                page.visit(server.url)
                page.until(f"{PAINT} !== undefined")
                paints.append(page.evaluate(PAINT))
            print(f"first paint: {', '.join(f'{each:.0f}' for each in paints)} ms", flush=True)
            begun = time.monotonic()
            fill(server.url, options.topics, options.consumers)
            print(f"filled in {time.monotonic() - begun:.0f} s", flush=True)
            page.call("Performance.enable")
            print(f"{'page':28} {'shown':>10} {'frame':>10} {'heap':>10}", flush=True)
            with Prober("127.0.0.1", server.port, server.process.pid) as prober:
                for name, address, shows in pages(options.topics, options.consumers):
                    begun = time.monotonic()
                    look(page, name, address, shows)
                    time.sleep(6)  # the page asks again
                    found = prober.between(begun, time.monotonic())
                    print(
                        f"{'  health meanwhile':28} median {found.median_ms:.0f} ms, longest {found.worst_ms:.0f} ms"
                        f" ({found.clock_ms:.0f} ms with the time without a processor)",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
