"""Many large gzip bodies arrive at once. Their memory is bounded, and is released soon after."""

from __future__ import annotations

import gzip
import http.client
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.unread import Watch, resident

MIB = 1 << 20
BODIES, SOAK_BODIES = 12, 40
BODY_BYTES, SOAK_BODY_BYTES = 24 * MIB, 63 * MIB
#: The memory for bodies. Two of them fit; a body that waits too long is refused.
BUDGET_BYTES, SOAK_BUDGET_BYTES = 64 * MIB, 256 * MIB
#: What one body needs while it is decoded, hashed and written, and what the log holds of it meanwhile.
TIMES = 4
#: What a broker that has served large bodies may keep: caches and indexes of bounded size.
PREFETCH_BYTES = 48 * MIB
#: Sooner than the minutes that it took before. Memory is measured every fraction of a second.
PATIENCE_S = 30.0


def _records(size: int) -> bytes:
    """An append of large records, which succeeds."""
    record = b'{"data":"' + b"x" * (MIB // 2) + b'"}'
    return b'{"records":[' + b",".join([record] * (size // (len(record) + 1))) + b"]}"


def _text(size: int) -> bytes:
    """One string in a field that appends do not have."""
    return b'{"unknown":"' + b"x" * size + b'"}'


def _crumbs(size: int) -> bytes:
    """Far more records than an append may have, each of a few bytes."""
    record = b'{"data":1}'
    return b'{"records":[' + b",".join([record] * (size // (len(record) + 1))) + b"]}"


KINDS: dict[str, Callable[[int], bytes]] = {"records": _records, "text": _text, "crumbs": _crumbs}


def _post(port: int, body: bytes, told: list[tuple[int, str | None]]) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        connection.request("POST", "/v0/topics/t", body, headers)
        answer = connection.getresponse()
        answer.read()
        told.append((answer.status, answer.getheader("retry-after")))


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "records" else pytest.mark.slow) for kind in KINDS]
)
def test_memory_of_bodies_is_bounded_and_given_back(tmp_path: Path, kind: str, soak_mode: bool) -> None:
    count = SOAK_BODIES if soak_mode else BODIES
    budget = SOAK_BUDGET_BYTES if soak_mode else BUDGET_BYTES
    body = gzip.compress(KINDS[kind](SOAK_BODY_BYTES if soak_mode else BODY_BYTES), 1)
    told: list[tuple[int, str | None]] = []
    with BrokerProcess(tmp_path, wal_file_bytes=64 * MIB, max_body_memory_bytes=budget, tail_cache_bytes=MIB) as broker:
        broker.start()
        broker.ok("PUT", "/v0/topics/t", {"durability": "disk"})
        broker.ok("POST", "/v0/topics/t", {"records": [{"data": "before"}]})
        before = resident(broker)
        clients = [threading.Thread(target=_post, args=(broker.port, body, told)) for _ in range(count)]
        with Watch(broker) as watch:
            for each in clients:
                each.start()
            for each in clients:
                each.join()
        seen = watch.seen()
        ended = time.monotonic()
        broker.until(lambda: resident(broker) < before + PREFETCH_BYTES, PATIENCE_S)
        taken = time.monotonic() - ended
        statuses = sorted(status for status, _ in told)
        print(
            f"{kind} {count}: {before // MIB} -> {seen.peak_bytes // MIB} -> {resident(broker) // MIB} MiB after "
            f"{taken:.1f} s, health {seen.slowest_s:.3f} s of {seen.answered}, {statuses}"
        )
        assert not watch.killed
        assert seen.answered > 0
        assert seen.peak_bytes < before + TIMES * budget
        assert len(told) == count
        assert {status for status, _ in told} <= {200, 400, 413, 429, 503}
        assert {status for status, _ in told} & {200, 400, 413}, "none was looked at"
        assert all(after for status, after in told if status in (429, 503))
        assert broker.complaints() == []
        assert broker.ok("GET", "/v0/topics/t")["head_seq"] >= 1
