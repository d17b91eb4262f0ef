"""Figures of a broker seen from outside: processor time of its processes, counters of /v0/metrics."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import msgspec

from loadtest.own_broker import ask

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_SAMPLE = re.compile(r"^(?P<name>[a-z_]+)(?:\{[^}]*\})? (?P<value>[0-9.e+-]+)$", re.MULTILINE)


class Cpu(msgspec.Struct, frozen=True):
    """Processor seconds of a process: all of it and of those it has started, and its main thread, where the event loop
    runs."""

    total_s: float
    main_s: float

    def since(self, before: Cpu) -> Cpu:
        return Cpu(self.total_s - before.total_s, self.main_s - before.main_s)


def cpu_of(pid: int) -> Cpu:
    """Processor time used so far, to 10 ms."""
    return Cpu(sum(_used_s(Path(f"/proc/{pid}"))) + children_s(pid), _used_s(Path(f"/proc/{pid}/task/{pid}"))[0])


def children_s(pid: int) -> float:
    """Processor time of all running processes below `pid`, such as the flusher's."""
    used = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the process has ended meanwhile
            for child in (task / "children").read_text().split():
                used += sum(_used_s(Path(f"/proc/{child}"))) + children_s(int(child))
    return used


def _used_s(process: Path) -> tuple[float, float]:
    """Processor seconds of the process and of its children that have ended."""
    # The command's name is in brackets and may hold anything; what follows it is fixed.
    ticks = [int(field) for field in (process / "stat").read_text().rpartition(")")[2].split()[11:15]]
    return sum(ticks[:2]) / _TICKS_A_SECOND, sum(ticks[2:]) / _TICKS_A_SECOND


def busy_s() -> float:
    """Processor seconds that all processes of the machine have used, interrupts included."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + softirq) / _TICKS_A_SECOND


def counters(host: str, port: int) -> dict[str, float]:
    """The sums over all labels of each sample of /v0/metrics (buckets left out)."""
    _, text = ask(host, port, "GET", "/v0/metrics")
    found: dict[str, float] = {}
    for sample in _SAMPLE.finditer(text.decode()):
        name = sample["name"]
        if not name.endswith("_bucket"):
            found[name] = found.get(name, 0.0) + float(sample["value"])
    return found


class WalUse(msgspec.Struct, frozen=True):
    """How a load used the log; all 0 when the broker does not report it."""

    fsyncs: float = 0.0
    groups: float = 0.0
    writes_per_group: float = 0.0
    fsync_ms: float = 0.0
    bytes: float = 0.0


def wal_use(before: dict[str, float], after: dict[str, float]) -> WalUse:
    """The difference of two looks at the counters."""

    def grown(name: str) -> float:
        return after.get(name, 0.0) - before.get(name, 0.0)

    groups, fsyncs = grown("topics_wal_group_size_count"), grown("topics_wal_fsyncs_total")
    return WalUse(
        fsyncs=fsyncs,
        groups=groups,
        writes_per_group=grown("topics_wal_group_size_sum") / groups if groups else 0.0,
        fsync_ms=1000 * grown("topics_wal_fsync_seconds_sum") / fsyncs if fsyncs else 0.0,
        bytes=grown("topics_wal_bytes_total"),
    )


def used_s(pid: int) -> dict[str, float]:
    """Processor seconds of the cells (or of the broker without cells), and of the gateways."""
    used = {"cell": 0.0, "gateway": 0.0}
    roles = {int(child): _role(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    if not any(roles.values()):
        used["cell"] = cpu_of(pid).total_s
    for child, role in roles.items():
        if role:
            used[role] += cpu_of(child).total_s
    return used


def _role(pid: str) -> str:
    """The role of the process in a set; "" if it belongs to none."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    if b"--role" not in command:
        return ""
    return "gateway" if b"broker.gateway" in command else "cell"
