"""A standalone Spark cluster on this machine: a master and two workers, as processes."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from tests.support.broker_process import PATIENCE_S, PYTHON_PATH, ROOT, TETHER

WORKERS = 2
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_EXECUTOR = b"CoarseGrainedExecutorBackend"


class SparkCluster:
    """`url` is the master's. Everything is on loopback, at ports that the system chooses."""

    def __init__(self, directory: Path, java_home: str) -> None:
        self._directory = directory
        self._java_home = java_home
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            log = self._start("master", "org.apache.spark.deploy.master.Master")
            found = self._await(log, _MASTER)
            self.url = found[1]
            for number in range(WORKERS):
                work = self._directory / f"work-{number}"
                arguments = ("-c", "1", "-m", "1g", "-d", str(work), self.url)
                log = self._start(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *arguments)
                self._await(log, re.compile("Successfully registered with master"))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def environment(self) -> dict[str, str]:
        """For drivers and workers. Executors inherit it from their worker."""
        return {
            **os.environ,
            "JAVA_HOME": self._java_home,
            "PYTHONPATH": PYTHON_PATH,
            "PYSPARK_PYTHON": sys.executable,
            # The worker starts executors as a program of this layout; it looks for a build of Spark otherwise.
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DRIVER_MEMORY": "512m",
        }

    def executors(self) -> list[int]:
        """The pids of the executors of this cluster's workers."""
        return [pid for each in self._processes for pid in _children(each.pid) if _EXECUTOR in _command(pid)]

    def _start(self, name: str, main: str, *arguments: str) -> Path:
        log = self._directory / f"{name}.log"
        java = Path(self._java_home, "bin", "java")
        jars = Path(pyspark.__file__).parent / "jars" / "*"
        command = [str(java), "-Xmx256m", "-cp", str(jars), main, "--host", "127.0.0.1", "--port", "0"]
        with log.open("ab") as file:
            self._processes.append(
                subprocess.Popen(
                    [*TETHER, *command, "--webui-port", "0", *arguments],
                    cwd=self._directory,
                    env=self.environment(),
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
            )
        return log

    def _await(self, log: Path, pattern: re.Pattern[str]) -> re.Match[str]:
        deadline = time.monotonic() + 3 * PATIENCE_S
        while (found := pattern.search(log.read_text())) is None:
            assert self._processes[-1].poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        return found

    def _end(self) -> None:
        for each in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)
            each.wait()


class Driver:
    """`python -m pipeline export --follow` on a cluster. It has a process group, with its Java."""

    def __init__(self, cluster: SparkCluster, log: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "pipeline", "export", "--spark-master", cluster.url, *arguments]
        self.log = log
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [*TETHER, *command],
                cwd=ROOT,
                env=cluster.environment(),
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL to the driver and its Java."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _children(pid: int) -> Iterator[int]:
    """The pids of all descendants."""
    found: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(path.read_bytes().rpartition(b")")[2].split()[1])
            found.setdefault(parent, []).append(int(path.parent.name))
    waiting = [pid]
    while waiting:
        for child in found.get(waiting.pop(), []):
            waiting.append(child)
            yield child


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
