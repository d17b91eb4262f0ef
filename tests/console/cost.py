"""What one open console takes from the appends of a busy broker.

    .venv/bin/python -m tests.console.cost [--pairs 8] [--seconds 8]

A load generator appends batches of 100 records as fast as the broker answers, in turns without a console and with one
that shows its overview. Two ratios are printed. That of the broker's processor time per record, all of its work for the
console included, is what a broker loses whose processor is the limit; it depends little on what else the machine does.
That of the rates contains what the browser takes from the same machine, too.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path

from loadtest.measure import Measured, Target, measure
from loadtest.own_broker import OwnBroker
from loadtest.scenario import Scenario
from tests.console.built import ConsolePage, console


def run(target: Target, page: ConsolePage, seconds: float, *, is_open: bool) -> Measured:
    """One load, with or without the overview in sight."""
    if is_open:
        page.visit(f"http://{target.host}:{target.port}")
        page.shows("Records appended")
    else:
        page.call("Page.navigate", url="about:blank")
    return measure(target, Scenario(batch=100, topics=4, seconds=seconds))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.console.cost", description=__doc__)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=8)
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        parser.error("There is no chromium: install it.")
    processor: list[float] = []
    rates: list[float] = []
    broker = OwnBroker()
    with tempfile.TemporaryDirectory(prefix="topics-console-") as temporary:
        try:
            broker.start()
            target = Target(host=broker.host, port=broker.port, own=broker)
            with console(chromium, f"http://{broker.host}:{broker.port}", Path(temporary)) as page:
                run(target, page, options.seconds, is_open=False)
                for number in range(options.pairs):
                    # The second run of a pair finds another machine than the first: each state is first in turns.
                    order = (False, True) if number % 2 == 0 else (True, False)
                    seen = {is_open: run(target, page, options.seconds, is_open=is_open) for is_open in order}
                    closed, opened = seen[False], seen[True]
                    processor.append(closed.cpu_us_per_record / opened.cpu_us_per_record)
                    rates.append(opened.records_per_s / closed.records_per_s)
                    print(
                        f"pair {number + 1}: {closed.records_per_s:,.0f} records/s without, "
                        f"{opened.records_per_s:,.0f} with a console; "
                        f"{closed.cpu_us_per_record:.3f} and {opened.cpu_us_per_record:.3f} us of the broker a record",
                        flush=True,
                    )
        finally:
            broker.close()
    for name, ratios in (("processor time", processor), ("rate", rates)):
        print(f"{name}: {statistics.median(ratios):.3f} x ({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
