"""Asks a broker for health again and again, in a separate process, each time over a new connection.

    python -m loadtest.health_probe HOST PORT PID [CERT] < /dev/null

Prints a line for each answer: the time of the request (seconds of the monotonic clock), how many ms the answer took,
and in how many of them the broker's event loop or this process was ready to run but had no processor. `Prober` starts
the process and reads these lines.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

#: Between one answer and the next request.
_PAUSE_S: Final = 0.03
_PATIENCE_S: Final = 60.0
_REQUEST: Final = b"GET /v0/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


class Probed(NamedTuple):
    """The answers of a period. ms exclude the time without a free processor; `clock_ms`: the slowest including it."""

    answered: int
    median_ms: float
    worst_ms: float
    clock_ms: float


class Prober:
    """A process that asks, until the block ends. `pid` is the broker's. Without `cert` it does not speak TLS."""

    def __init__(self, host: str, port: int, pid: int, cert: str = "") -> None:
        more = [cert] if cert else []
        command = [sys.executable, "-m", "loadtest.health_probe", host, str(port), str(pid), *more]
        self._process = subprocess.Popen(
            command, cwd=Path(__file__).resolve().parents[1], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        #: Of each answer: when it was asked for, how long it took, how much of that without a processor.
        self._seen: list[tuple[float, float, float]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def until(self, when: float) -> None:
        """Wait for the first answer that was asked for after this time."""
        end = time.monotonic() + 2 * _PATIENCE_S
        while not self._seen or self._seen[-1][0] < when:
            if time.monotonic() > end or self._process.poll() is not None:
                raise TimeoutError("health is not answered")
            time.sleep(0.01)

    def between(self, begin: float, end: float) -> Probed:
        """The answers to requests from `begin` to `end`."""
        seen = [each for each in self._seen if begin <= each[0] < end]
        if not seen:
            return Probed(0, 0.0, 0.0, 0.0)
        times = [took - waited for _, took, waited in seen]
        return Probed(len(seen), statistics.median(times), max(times), max(each[1] for each in seen))

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            at, took, waited = map(float, line.split())
            self._seen.append((at, took, waited))


def _asked(host: str, port: int, tls: ssl.SSLContext | None) -> None:
    """One answer. Raises OSError."""
    with socket.create_connection((host, port), timeout=_PATIENCE_S) as plain:
        wire = plain if tls is None else tls.wrap_socket(plain, server_hostname=host)
        wire.sendall(_REQUEST)
        got = b""
        while b"\r\n\r\n" not in got:
            piece = wire.recv(1 << 16)
            if not piece:
                raise ConnectionResetError("it ended without an answer")
            got += piece
        if not got.startswith(b"HTTP/1.1 200 "):
            raise ConnectionError(got.split(b"\r\n", 1)[0].decode("latin-1"))


def _waited_s(*processes: int) -> float:
    """How long the main threads of these could have run, and had no processor; 0 where the system does not say."""
    total = 0
    for pid in processes:
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
    return total / 1e9


def main() -> int:
    """Until it is ended."""
    host, port, pid, *certs = sys.argv[1:]
    tls = ssl.create_default_context(cafile=certs[0]) if certs else None
    with contextlib.suppress(OSError):
        os.nice(-10)  # where it is allowed: what is measured is the broker, not this process
    processes = (int(pid), os.getpid())
    while True:
        time.sleep(_PAUSE_S)
        waited, begin = _waited_s(*processes), time.monotonic()
        while True:
            try:
                _asked(host, int(port), tls)
                break
            except OSError as error:  # it counts as unanswered until it is
                print(f"health: {error}", file=sys.stderr, flush=True)
                time.sleep(_PAUSE_S)
        took, waited = time.monotonic() - begin, _waited_s(*processes) - waited
        print(f"{begin:.6f} {1000 * took:.3f} {1000 * min(took, waited):.3f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
