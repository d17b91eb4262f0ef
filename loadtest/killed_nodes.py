"""A mixed load on a cluster whose nodes are killed, paused, cut off from the store and stopped, and a ledger of all
answers.

    python -m loadtest.killed_nodes                                  3 nodes, 6 cells, 20 faults
    python -m loadtest.killed_nodes --faults kill --rounds 10        only kills, and how long each cell was away
    python -m loadtest.killed_nodes --rounds 200 --keep killed-nodes
    python -m loadtest.killed_nodes --rounds 200 --minutes 40       the same, and the ledger's verdict after 40 minutes
    python -m loadtest.killed_nodes --faults kill stop --nodes 2 --other-tree ../version-before

The load is that of `loadtest.killed_cells`, by clients that go to the gateway of another node when theirs does not
answer. In each round one node has one fault, and each fault has its turn before one comes again:

    kill        SIGKILL for the node with the most cells, and all its processes; it starts again when the others serve
                all cells
    pause       SIGSTOP for all its processes, for up to 12 s
    cut         the store does not answer it, for up to 12 s
    refusals    the store answers 3 of 10 of its requests with 500, for 5 s
    losses      the store does not answer 3 of 10 of its requests, which it carries out, for 5 s
    clock       the node is killed, and runs for 10 s with a clock that is a year ahead
    stop        SIGTERM; it starts again

With --other-tree the first node runs the programs of another checkout, so that each version takes cells over from the
other one.

The store is in memory, in a process of its own. At the end everything is read, and `loadtest.mixed_ledger` judges. The
exit status is 1 if it finds anything.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

from loadtest.killed_actors import Service
from loadtest.killed_cells import Load
from loadtest.mixed_ledger import Verdict
from loadtest.own_broker import BrokerFailed, OwnBroker, add_set
from loadtest.report import keep
from loadtest.slow_s3 import BUCKET, Faults, SlowS3
from storage import home_cell

KINDS: Final = ("kill", "pause", "cut", "refusals", "losses", "clock", "stop")
URL: Final = f"s3://{BUCKET}/clusters/one"
#: Of a cluster on a busy machine, until all cells answer.
_CALM_WITHIN_S: Final = 300.0
_PROBE_S: Final = 5.0
_LOOK_AGAIN_S: Final = 0.02
_YEAR_S: Final = 31_536_000


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has shown."""

    verdict: Verdict
    nodes: int
    cells: int
    #: How often each fault was tried.
    faults: dict[str, int]
    #: Of kills: until a cell of the node answered a write again, by another node.
    away_s: list[float]
    cut: int
    seconds: float

    def told(self) -> str:
        v = self.verdict
        lines = [
            f"Ledger: lost {v.lost}, doubled {v.doubled}, disordered {v.disordered}, double leases {v.double_leases} of"
            f" {v.acknowledged} acknowledged, {v.delivered} delivered, {v.leases} leases, {v.jobs_done} jobs done,"
            f" {v.dead} dead, {v.copied} copied.",
            f"{self.nodes} nodes, {self.cells} cells; {', '.join(f'{n} {kind}' for kind, n in self.faults.items())}, in"
            f" {self.seconds:.0f} s; {self.cut} requests were cut off or refused meanwhile.",
        ]
        if self.away_s:
            lines.append(
                f"Cells of killed nodes answered again after {min(self.away_s):.1f} to {max(self.away_s):.1f} s, median"
                f" {median(self.away_s):.1f} s ({len(self.away_s)})."
            )
        return "\n".join([*lines, *v.problems])


class NodeProcess(OwnBroker):
    """A node of the cluster, with all its processes."""

    def __init__(self, name: str, store: SlowS3, options: argparse.Namespace, tree: Path | None = None) -> None:
        super().__init__(
            tree=tree,
            parent=options.dir,
            settings={
                "CLUSTER_URL": URL,
                "NODE": name,
                "CLUSTER_PORT": "0",
                "CELL_PORTS": "0",
                "GATEWAYS": "1",
                "WAL_FILE_BYTES": str(1 << 20),
                "WAL_RESERVE_BYTES": str(1 << 16),
                **dict(options.set),
            },
            environment=store.environment_of(name),
        )
        self.name = name
        self._clock_s = 0

    def launch(self, *, clock_s: int = 0) -> None:
        """Start it, and return when it listens."""
        self._clock_s = clock_s
        self._process, port_file = self._spawn()
        deadline = time.monotonic() + _CALM_WITHIN_S
        while not port_file.exists() or not port_file.read_text():
            if self.ended() or time.monotonic() > deadline:
                raise self.failed("did not start")
            time.sleep(_LOOK_AGAIN_S)
        self.port = int(port_file.read_text())

    def _environment(self, port_file: Path) -> dict[str, str]:
        found = super()._environment(port_file)
        if self._clock_s:
            found["PYTHONPATH"] += os.pathsep + str(Path(__file__).parent / "other_clock")
            found["TOPICS_LOAD_CLOCK_S"] = str(self._clock_s)
        return found

    def send_all(self, number: signal.Signals) -> None:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        for pid in (self.pid, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self) -> None:
        """SIGTERM, until it has ended."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(_CALM_WITHIN_S)
        self.port = 0


class Cluster:
    """The nodes and their store."""

    def __init__(self, store: SlowS3, options: argparse.Namespace) -> None:
        self.store = store
        self.cells: int = options.cells
        trees = [options.other_tree, *[None] * (options.nodes - 1)]
        self.nodes = [NodeProcess(f"node-{number}", store, options, tree) for number, tree in enumerate(trees)]
        self.service = Service(rest_s=options.rest_ms / 1000)
        subprocess.run(
            [sys.executable, "-m", "storage", "cluster", "init", URL, "--cells", str(self.cells)],
            cwd=Path(__file__).resolve().parents[1],
            env={**os.environ, **store.environment},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        self._probes = [_probe(cell, self.cells) for cell in range(self.cells)]

    def start(self) -> None:
        for node in self.nodes:
            node.launch()
        self._tell()
        self.until_whole()

    def _tell(self) -> None:
        self.service.addresses[:] = [(node.host, node.port) for node in self.nodes if node.port]

    def launch(self, node: NodeProcess, *, clock_s: int = 0) -> None:
        node.launch(clock_s=clock_s)
        self._tell()

    def kill(self, node: NodeProcess) -> None:
        node.kill()
        self._tell()

    def owned_by(self, node: NodeProcess) -> set[int]:
        """The cells of the node, as another one sees it."""
        [other, *_] = [each for each in self.nodes if each is not node and each.port]
        while True:
            with suppress(OSError, HTTPException):
                cells = ask_node(other, "GET", "/v0/cluster")["cells"]
                return {each["cell"] for each in cells if each.get("node") == node.name}

    def until_whole(self, *, but: NodeProcess | None = None) -> dict[int, float]:
        """Until each cell has answered a write, by a gateway of the other nodes. Returns after how many seconds."""
        began, took = time.monotonic(), dict[int, float]()

        def ask(cell: int) -> None:
            while time.monotonic() < began + _CALM_WITHIN_S:
                for node in self.nodes:
                    if node is not but and node.port and self._answers(node, cell):
                        took[cell] = time.monotonic() - began
                        return
                time.sleep(_LOOK_AGAIN_S)

        threads = [threading.Thread(target=ask, args=(cell,), daemon=True) for cell in range(self.cells)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        if len(took) < self.cells:
            missing = sorted({*range(self.cells)} - took.keys())
            raise self.nodes[0].failed(f"and the others leave cells {missing} without an answer")
        return took

    def _answers(self, node: NodeProcess, cell: int) -> bool:
        with suppress(OSError, HTTPException, KeyError):
            ask_node(node, "POST", f"/v0/topics/{self._probes[cell]}", {"records": [{"data": 1}]})["first_seq"]
            return True
        return False

    def close(self) -> None:
        for node in self.nodes:
            node.kill()
            node.close()


def ask_node(node: NodeProcess, method: str, path: str, body: Any = None) -> Any:
    connection = HTTPConnection(node.host, node.port, timeout=_PROBE_S)
    try:
        headers = {"Content-Type": "application/json"} if body else {}
        connection.request(method, path, None if body is None else msgspec.json.encode(body), headers)
        return msgspec.json.decode(connection.getresponse().read())
    finally:
        connection.close()


def _probe(cell: int, cells: int) -> str:
    """The name of a topic of that cell."""
    return next(f"probe-{each}" for each in range(10_000) if home_cell(f"probe-{each}", cells) == cell)


class Run:
    """One run, from an empty cluster to the verdict."""

    def __init__(self, cluster: Cluster, options: argparse.Namespace) -> None:
        self._cluster = cluster
        self._options = options
        self._dice = random.Random(options.seed)
        self._away_s: list[float] = []
        self._faults: dict[str, int] = dict.fromkeys(options.faults, 0)
        self._left: list[str] = []

    def run(self) -> Outcome:
        print(f"seed {self._options.seed}", flush=True)
        begin = time.monotonic()
        self._cluster.start()
        # The end of the log of class disk may be lost with a node.
        load = Load(self._cluster.service, self._options, self._dice, self._check, ("fsync",))
        load.begin()
        try:
            for _ in range(self._options.rounds):
                if time.monotonic() - begin > 60 * self._options.minutes:
                    break
                self._round(load)
        finally:
            self._cluster.service.over.set()
        self._cluster.until_whole()
        verdict = load.end()
        return Outcome(
            verdict=verdict,
            nodes=self._options.nodes,
            cells=self._options.cells,
            faults=self._faults,
            away_s=self._away_s,
            cut=self._cluster.service.cut,
            seconds=time.monotonic() - begin,
        )

    def _check(self, what: str) -> BrokerFailed | None:
        """What is wrong with the nodes; with `what`: that the load has waited for it for too long."""
        for node in self._cluster.nodes:
            if what or (node.port and node.ended()):
                return node.failed(what or "ended")
        return None

    def _round(self, load: Load) -> None:
        if not self._left:
            self._left = self._dice.sample(self._options.faults, len(self._options.faults))
        kind, victim = self._left.pop(), self._dice.choice(self._cluster.nodes)
        load.go_on(self._options.between)
        print(f"{sum(self._faults.values()) + 1} {kind} {victim.name}", flush=True)
        self._faults[kind] += 1
        cluster = self._cluster
        match kind:
            case "kill":
                victim = max(cluster.nodes, key=lambda node: (len(cluster.owned_by(node)), node is victim))
                cells = cluster.owned_by(victim)
                cluster.kill(victim)
                took = cluster.until_whole(but=victim)
                self._away_s += [took[cell] for cell in cells]
                print(f"  {', '.join(f'cell {cell}: {took[cell]:.1f} s' for cell in sorted(cells))}", flush=True)
                cluster.launch(victim)
            case "clock":
                cluster.kill(victim)
                cluster.launch(victim, clock_s=self._dice.choice((-1, 1)) * _YEAR_S)
                time.sleep(10)
                cluster.kill(victim)
                cluster.launch(victim)
            case "pause":
                victim.send_all(signal.SIGSTOP)
                time.sleep(self._dice.uniform(0, 12))
                victim.send_all(signal.SIGCONT)
            case "stop":
                victim.stop()
                cluster.launch(victim)
            case "cut":
                self._with_faults(victim, Faults(silent=True), self._dice.uniform(1, 12))
            case "refusals":
                self._with_faults(victim, Faults(refused=0.3), 5.0)
            case _:
                self._with_faults(victim, Faults(lost=0.3), 5.0)
        cluster.until_whole()

    def _with_faults(self, victim: NodeProcess, faults: Faults, seconds: float) -> None:
        self._cluster.store.faults(victim.name, faults)
        time.sleep(seconds)
        self._cluster.store.faults(victim.name, Faults())


def _stopped(number: int, _: object) -> None:
    """The nodes and the store shall not outlive a run that is stopped."""
    sys.exit(128 + number)


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _stopped)
    with SlowS3() as store:
        # A short path: it has unix sockets.
        options.dir = options.dir or tempfile.gettempdir()
        cluster = Cluster(store, options)
        try:
            outcome = Run(cluster, options).run()
        except BrokerFailed as error:
            print(error, file=sys.stderr)
            return 1
        finally:
            cluster.close()
    print(outcome.told())
    if options.keep:
        keep(options.keep, f"python -m loadtest.killed_nodes {shlex.join(arguments or sys.argv[1:])}", outcome)
    return int(not outcome.verdict.holds)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m loadtest.killed_nodes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    add("--nodes", type=int, default=3)
    add("--cells", type=int, default=6)
    add("--rounds", type=int, default=20)
    add("--minutes", type=float, default=math.inf, help="begin no more rounds after this time (default: no limit)")
    add("--faults", nargs="+", choices=KINDS, default=KINDS, help="the faults to choose from (default: all)")
    add("--each", type=int, default=1, help="topics, queues and routers of each kind for each cell")
    add("--between", type=int, default=60, help="how many more answers there are before the next fault")
    add(
        "--rest-ms", type=int, default=0, help="how long each client waits after an answer or a refusal: a lighter load"
    )
    add("--seed", type=int, default=random.randrange(1 << 30))
    add("--keep", default="", metavar="NAME", help="write the figures to this file among the results")
    add(
        "--other-tree",
        type=Path,
        metavar="DIR",
        help="the first node runs the programs of this checkout: of another version",
    )
    add("--dir", default="", help="where the data directories are made (default: the temporary directory)")
    add_set(made)
    return made


if __name__ == "__main__":
    sys.exit(main())
