"""A set of cells with its gateway, as processes."""

from __future__ import annotations

import contextlib
import http.client
from pathlib import Path

from broker.cells import home_cell
from tests.support.broker_process import BrokerProcess

CELLS = 3


def test_a_set_serves_all_topics_at_one_address_and_survives_a_killed_cell(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, cells=CELLS, wal_shards=1) as broker:
        broker.start()
        names = [f"topic-{number}" for number in range(9)]
        for name in names:
            broker.ok("PUT", f"/v0/topics/{name}", {})
            assert broker.ok("POST", f"/v0/topics/{name}", {"records": [{"data": name}]})["head_seq"] == 1
        assert [each["topic"] for each in broker.ok("GET", "/v0/topics")["topics"]] == names
        killed = home_cell(names[0], CELLS)
        broker.kill_cell(killed)
        broker.until(lambda: broker.call("GET", f"/v0/topics/{names[0]}")[0] == 200)
        broker.wait_ready()
        for name in names:
            read = broker.ok("POST", f"/v0/topics/{name}/diff", {"from_seq": 0})
            assert [record["data"] for record in read["records"]] == [name]
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", broker.port)) as connection:
            for name in names:
                connection.request("GET", f"/v0/topics/{name}")
                answer = connection.getresponse()
                answer.read()
                assert answer.headers["topics-cell"] == str(home_cell(name, CELLS))
        assert broker.stop() == 0
