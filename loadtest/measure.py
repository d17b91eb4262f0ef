"""One measurement: prepare the topics, run the generator, look at the broker before and after, verify if asked to."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from loadtest import ledger, places, proof
from loadtest import scenario as scenarios
from loadtest.generator import LoadResult, Task
from loadtest.observed import Cpu, WalUse, busy_s, counters, cpu_of, wal_use
from loadtest.own_broker import OwnBroker, ask
from loadtest.scenario import PRELOAD_BATCH, Scenario, append_body

ROOT = Path(__file__).resolve().parents[1]


class Target(msgspec.Struct, kw_only=True):
    """The broker to measure. `own` is None for one that was started elsewhere; then its processor time is unknown."""

    host: str
    port: int
    own: OwnBroker | None = None


class Measured(msgspec.Struct, kw_only=True):
    """The outcome of one scenario. Rates are per second, times as their names say."""

    scenario: Scenario
    records_per_s: float
    requests_per_s: float
    latency_ms: dict[str, float]
    cpu_us_per_record: float
    loop_us_per_record: float
    broker_cores: float
    generator_cores: float
    #: Cores that other programs used meanwhile: a high value makes this figure too low.
    other_cores: float
    wal: WalUse
    failed: dict[int, int]
    max_backlog: int = 0
    #: By what the broker shows that `Scenario.place` or `Scenario.steady` holds; "" where neither is asked for.
    proof: str = ""
    verdict: ledger.Verdict | None = None


def prepare(target: Target, scenario: Scenario) -> None:
    """Create the topics again; for readers, with records in them."""
    config = msgspec.json.encode({"durability": scenario.durability, "partitions": scenario.partitions})
    for name in scenario.topic_names:
        path = f"/v0/topics/{name}"
        _expect(target, "DELETE", path)
        _expect(target, "PUT", path, config)
        if scenario.kind == "read":
            body = scenarios.numbered(append_body(PRELOAD_BATCH, scenario.record_bytes), 0)
            for _ in range(0, places.written_for(scenario), PRELOAD_BATCH):
                _expect(target, "POST", path + "?return_seqs=false", body)
    if scenario.place:
        places.settle(target.host, target.port, scenario)


def _expect(target: Target, method: str, path: str, body: bytes = b"") -> bytes:
    status, answer = ask(target.host, target.port, method, path, body)
    if not 200 <= status < 300:
        raise RuntimeError(f"{method} {path} was answered {status}: {answer[:300]!r}")
    return answer


def measure(target: Target, scenario: Scenario, *, verify: bool = False, kill: bool = False) -> Measured:
    """Run one scenario. `verify`: compare with the ledger afterwards. `kill`: SIGKILL the started broker at the end of
    the window, with writes in flight, and start it again before the comparison. Raises BrokerFailed when the broker's
    counters contradict the scenario.
    """
    prepare(target, scenario)
    with tempfile.TemporaryDirectory(prefix="topics-ledger-") as folder:
        path = os.path.join(folder, "ledger") if verify or kill else ""
        # Under load an answer with the counters is late: what proves something is asked for where there is none.
        proven = bool(scenario.place) or scenario.steady
        before = counters(target.host, target.port) if proven else {}
        seen, cpu, wal, busy = _observe(target, scenario, path, kill=kill)
        proof = _proof(target, scenario, before, seen) if proven else ""
        verdict = None
        if path:
            if kill and target.own is not None:
                target.own.start()
                target.port = target.own.port
            verdict = ledger.verify(target.host, target.port, path, scenario.topic_names, scenario.batch)
    records = seen.requests * scenario.batch
    return Measured(
        scenario=scenario,
        records_per_s=records / seen.seconds,
        requests_per_s=seen.requests / seen.seconds,
        latency_ms={name: 1000 * value for name, value in seen.latencies.items()},
        cpu_us_per_record=1e6 * cpu.total_s / max(1, records),
        loop_us_per_record=1e6 * cpu.main_s / max(1, records),
        broker_cores=cpu.total_s / seen.seconds,
        generator_cores=seen.cpu_s / seen.seconds,
        other_cores=max(0.0, busy - cpu.total_s - seen.cpu_s) / seen.seconds,
        wal=wal,
        failed=seen.failed,
        max_backlog=seen.max_backlog,
        proof=proof,
        verdict=verdict,
    )


def _proof(target: Target, scenario: Scenario, before: dict[str, float], seen: LoadResult) -> str:
    after = counters(target.host, target.port)
    if scenario.steady:
        return proof.proof(scenario.name, before, after)
    return places.proof(scenario, before, after, seen.requests)


def _observe(target: Target, scenario: Scenario, path: str, *, kill: bool) -> tuple[LoadResult, Cpu, WalUse, float]:
    with generate(Task(scenario=scenario, host=target.host, port=target.port, ledger=path)) as generator:
        assert generator.stdout is not None
        generator.stdout.readline()
        before, busy = _cpu(target), busy_s()  # first: a broker that has much to do answers late
        wal_before = counters(target.host, target.port)
        if kill and target.own is not None:
            time.sleep(scenario.seconds)
            after, busy, wal_after = _cpu(target), busy_s() - busy, counters(target.host, target.port)
            target.own.kill()
            generator.stdout.readline()
        else:
            generator.stdout.readline()
            after, busy, wal_after = _cpu(target), busy_s() - busy, counters(target.host, target.port)
        last = generator.stdout.readline()
    return seen_in(last), after.since(before), wal_use(wal_before, wal_after), busy


def generate(task: Task) -> subprocess.Popen[bytes]:
    """A running generator: it prints a line at the window's begin, one at its end, and one with the result."""
    return client("loadtest.generator", task)


def client(module: str, task: msgspec.Struct) -> subprocess.Popen[bytes]:
    """That program of ours under way, with its task."""
    process = subprocess.Popen([sys.executable, "-m", module], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(task))
    process.stdin.close()
    return process


def seen_in(last: bytes) -> LoadResult:
    """The result in the generator's last line."""
    if not last:
        raise RuntimeError("the generator failed; see above")
    return msgspec.json.decode(last, type=LoadResult)


def _cpu(target: Target) -> Cpu:
    return cpu_of(target.own.pid) if target.own is not None else Cpu(0.0, 0.0)
