"""Facts about the machine of a measurement: a figure means nothing without them."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_SYNCS = 200
_SERVERS = ("redis-server", "nats-server")
_PACKAGES = ("uvicorn", "zttp", "uvloop", "msgspec", "xxhash")


def facts(directory: str = "") -> dict[str, str | int | float]:
    """The machine, the commit, versions, and the time of a sync in `directory` (default: the temporary one)."""
    found: dict[str, str | int | float] = {
        "cpu": _line("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(_line("/proc/meminfo", "MemTotal").split()[0]) / (1 << 20), 1),
        "kernel": platform.release(),
        "commit": said_by("git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"),
        "python": platform.python_version(),
        "load_1min": os.getloadavg()[0],
        "filesystem": _filesystem(directory or tempfile.gettempdir()),
        "fdatasync_4k_us": fdatasync_us(4096, directory),
        "fdatasync_256k_us": fdatasync_us(256 * 1024, directory),
    }
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    return found | {server: said_by(server, "--version") for server in _SERVERS}


def said_by(program: str, *arguments: str) -> str:
    """The first line that a program says; "absent" when it is not here or fails."""
    if shutil.which(program) is None:
        return "absent"
    run = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    return run.stdout.partition("\n")[0].strip() if run.returncode == 0 else "absent"


def fdatasync_us(size_bytes: int, directory: str = "") -> float:
    """Median time of write + fdatasync at the next place of a file that has been written before."""
    block = os.urandom(size_bytes)
    with tempfile.TemporaryFile(dir=directory or None) as file:
        descriptor = file.fileno()
        os.pwrite(descriptor, bytes(size_bytes * _SYNCS), 0)
        os.fsync(descriptor)
        times: list[float] = []
        for index in range(_SYNCS):
            begin = time.perf_counter()
            os.pwrite(descriptor, block, index * size_bytes)
            os.fdatasync(descriptor)
            times.append(time.perf_counter() - begin)
    return round(sorted(times)[_SYNCS // 2] * 1e6, 1)


def _line(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "0 unknown"


def _filesystem(directory: str) -> str:
    """Type of the file system a directory lies on."""
    best, found = "", "unknown"
    real = os.path.realpath(directory)
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind = line.split()[:3]
        if (real + "/").startswith(place.rstrip("/") + "/") and len(place) >= len(best):
            best, found = place, kind
    return found
