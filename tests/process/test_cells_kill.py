"""Cells and gateways of a set are killed at random under load. Acked writes are there once and in order, and an answer
that says that nothing was done is true."""

from __future__ import annotations

import os
import random
import signal
import threading
from contextlib import suppress
from pathlib import Path

from broker.cells import home_cell
from tests.conftest import is_soak
from tests.support.broker_process import BrokerProcess
from tests.support.cell_writer import Writer, processes

CELLS = 3
#: Writers with an idempotency key, and without.
WRITERS = 6
KILLS = 60 if is_soak(os.environ) else 6


def test_no_acked_record_is_lost_or_doubled_while_cells_and_gateways_are_killed(tmp_path: Path) -> None:
    dice = random.Random(random.randrange(1 << 30))
    with BrokerProcess(tmp_path, cells=CELLS) as broker:
        broker.start()
        port = broker.port
        writers = [Writer(port, f"orders-{number}", number % 2 == 0) for number in range(WRITERS)]
        assert {home_cell(writer.topic, CELLS) for writer in writers} == set(range(CELLS))
        for writer in writers:
            durability = dice.choice(("fsync", "disk"))
            broker.ok("PUT", f"/v0/topics/{writer.topic}", {"durability": durability})
        over = threading.Event()
        threads = [threading.Thread(target=writer.run, args=(over,)) for writer in writers]
        for thread in threads:
            thread.start()
        for _ in range(KILLS):
            before = sum(len(writer.acked) for writer in writers)
            broker.until(lambda before=before: sum(len(each.acked) for each in writers) > before + 20)
            with suppress(ProcessLookupError):
                os.kill(dice.choice(processes(broker)), signal.SIGKILL)
        over.set()
        for thread in threads:
            thread.join()
        assert [writer.error for writer in writers if writer.error is not None] == []
        broker.wait_ready()
        for writer in writers:
            writer.check(broker)
        ended = [line for line in broker.log().splitlines() if "process_ended" in line]
        assert len(ended) >= KILLS // 2
        of_cells = sum("process=cell-" in line for line in ended)
        broker.until(lambda: sum(each["restarts"] for each in broker.ok("GET", "/v0/health")["cells"]) == of_cells)
        assert broker.stop() == 0
