"""A broker was killed, and so was its successor during its start. The third start announced a loss that did not happen.

Three records in a topic of class disk, kill -9, start, kill -9 once `.lock` is held, start: the head went from 3 to
256, with a tombstone of cause `crash` in between. The destination of a router kept a range of cause `source_trim` for
good. `tests/crash/test_interrupted_start.py` kills a start at every call to the disk.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.broker_process import BrokerProcess


def test_a_second_kill_during_a_start_announces_no_loss(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        broker.start()
        for data in range(3):
            assert broker.call("POST", "/v0/topics/t", {"records": [{"data": data}]})[0] in (200, 201)
        broker.kill()
        lock = broker.data_dir / ".lock"
        for _ in range(3):
            before = lock.read_text()
            broker.launch()
            broker.until(lambda before=before: lock.read_text() != before)
            broker.kill()
        broker.start()
        status, state = broker.call("GET", "/v0/topics/t")
        assert (status, state["head_seq"], state["count"]) == (200, 3, 3)
        assert broker.call("POST", "/v0/topics/t/diff", {"from_seq": 0})[1]["tombstone"] is None
        assert broker.call("POST", "/v0/topics/t", {"records": [{"data": 4}]})[1]["first_seq"] == 4
