"""Profiles of hot paths: how the event loop of a loaded broker spends its time. Needs py-spy on the PATH.

    python -m loadtest.profiles append-1 --out before.txt --tree ../other
    python -m loadtest.profiles append-1 --out after.txt

Starts a broker in a temporary directory, runs py-spy on it during the load, and prints where the loop spent its time.
`loadtest.flames` makes graphs and tables of the output files.

py-spy counts a thread that waits for a processor as running. Beside other work it therefore overstates the places where
the loop is interrupted: system calls that wake the client. With `--nice -15` (as root) the loop's thread hardly ever
waits.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
from pathlib import Path

import msgspec

from loadtest import scenario as scenarios
from loadtest.generator import Task
from loadtest.measure import Target, client, generate, prepare
from loadtest.observed import Cpu, busy_s, cpu_of
from loadtest.own_broker import OwnBroker, add_set, ask
from loadtest.queue_client import Task as QueueTask
from loadtest.scenario import Scenario

PATHS = {
    "append-1": Scenario(batch=1, durability="fsync"),
    "append-100": Scenario(batch=100, durability="fsync"),
    "diff-1000": Scenario(kind="read", batch=1000, durability="fsync"),
}
QUEUE = "claim-ack-100"
_FILL_BATCH = 1000
#: Until it is told to stop: all threads, functions instead of lines, one line a stack.
_SPY = "py-spy record --threads --function --format raw --duration 600"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.profiles", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", choices=[*PATHS, QUEUE])
    parser.add_argument(
        "--out", type=Path, default=Path("stacks.txt"), help="where the stacks are kept, as py-spy's raw lines"
    )
    parser.add_argument("--tree", type=Path, default=None, help="folder whose broker is run (default: this checkout)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of load; of claims: as long as there are jobs")
    parser.add_argument("--jobs", type=int, default=400_000, help="of a queue; whole thousands")
    parser.add_argument("--rate", type=int, default=250, help="samples a second; 0: only what the loop spent")
    parser.add_argument("--dir", default="", help="where the data directory is made (default: the temporary directory)")
    add_set(parser)
    parser.add_argument("--nice", type=int, default=0, help="of the loop's thread")
    options = parser.parse_args()
    own = OwnBroker(tree=options.tree, settings=dict(options.set), parent=options.dir)
    try:
        own.start()
        if options.nice:
            os.setpriority(os.PRIO_PROCESS, own.pid, options.nice)  # of the main thread alone, on Linux
        if options.path == QUEUE:
            load, records = _queue(own, options.jobs), options.jobs
        else:
            scenario = msgspec.structs.replace(PATHS[options.path], seconds=options.seconds)
            load, records = _load(own, scenario), 0
        with load:
            assert load.stdout is not None
            cpu, seconds, seen = _watched(own, load, options)
        records = records or seen["requests"] * PATHS[options.path].batch
        print(
            f"{options.path}: {records / seen['seconds']:,.0f} records/s, the loop"
            f" {1e6 * cpu.main_s / records:.2f} µs a record, all of the broker {1e6 * cpu.total_s / records:.2f};"
            f" other cores {seconds / seen['seconds']:.2f}"
        )
    finally:
        own.close()


def _load(own: OwnBroker, scenario: Scenario) -> subprocess.Popen[bytes]:
    prepare(Target(host=own.host, port=own.port, own=own), scenario)
    return generate(Task(scenario=scenario, host=own.host, port=own.port))


def _queue(own: OwnBroker, jobs: int) -> subprocess.Popen[bytes]:
    """A queue with a number of jobs, and a client with 16 connections that claims and acks 100 at a time."""
    path = "/v0/topics/jobs"
    body = scenarios.numbered(scenarios.append_body(_FILL_BATCH, 100), 0)
    calls = [("PUT", path, b'{"type":"queue","durability":"fsync"}')]
    calls += [("POST", path + "?return_seqs=false", body)] * (jobs // _FILL_BATCH)
    for method, target, content in calls:
        status, answer = ask(own.host, own.port, method, target, content)
        if not 200 <= status < 300:
            raise RuntimeError(f"{method} {target} was answered {status}: {answer[:300]!r}")
    task = QueueTask(kind="topics", host=own.host, port=own.port, queue="jobs", connections=16, batch=100, jobs=jobs)
    return client("loadtest.queue_client", task)


def _watched(
    own: OwnBroker, load: subprocess.Popen[bytes], options: argparse.Namespace
) -> tuple[Cpu, float, dict[str, float]]:
    """The broker's processor time between the load's first line and its second, with py-spy attached; that of all other
    processes, in seconds; and the load's third line.
    """
    assert load.stdout is not None
    load.stdout.readline()
    command = [*_SPY.split(), "--rate", str(options.rate), "--pid", str(own.pid), "--output", str(options.out)]
    spy = subprocess.Popen(command, stdout=subprocess.DEVNULL) if options.rate else None
    before, busy = cpu_of(own.pid), busy_s()
    load.stdout.readline()
    cpu, busy = cpu_of(own.pid).since(before), busy_s() - busy
    if spy is not None:
        spy.send_signal(signal.SIGINT)
        spy.wait(60)
    seen = msgspec.json.decode(load.stdout.readline(), type=dict[str, object])
    numbers = {name: float(value) for name, value in seen.items() if isinstance(value, (int, float))}
    return cpu, busy - cpu.total_s - numbers["cpu_s"], numbers


if __name__ == "__main__":
    main()
