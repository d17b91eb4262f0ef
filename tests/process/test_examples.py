"""The examples work, started by the commands of their docstrings against a real broker."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.http.browser.chromium import PATIENCE_S as BROWSER_S
from tests.http.browser.opened_page import OpenedPage
from tests.support.broker_process import LOOK_AGAIN_S, PATIENCE_S, PYTHON_PATH, ROOT, TETHER, BrokerProcess
from tests.support.node import FETCH_S, build
from tests.support.ports import free_port

EXAMPLES = ROOT / "examples"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path) as made:
        yield made


def environment(broker: BrokerProcess, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("TOPICS_")}
    return kept | {"PYTHONPATH": PYTHON_PATH, "TOPICS_URL": f"http://127.0.0.1:{broker.port}"} | more


def run(broker: BrokerProcess, *command: str, **more: str) -> str:
    """The output of a Python program that must succeed."""
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment(broker, **more), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


class Running:
    """A Python program that runs until it is stopped."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self._process = process
        self._output = output

    def printed(self) -> str:
        return self._output.read_text()

    def until(self, pattern: str) -> re.Match[str]:
        """Wait until the output matches."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := re.search(pattern, self.printed(), re.MULTILINE)) is None:
            assert self._process.poll() is None, self.printed()
            assert time.monotonic() < deadline, self.printed()
            time.sleep(LOOK_AGAIN_S)
        return found

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE_S)


@contextmanager
def running(broker: BrokerProcess, output: Path, *command: str) -> Iterator[Running]:
    with output.open("wb") as sink:
        process = subprocess.Popen(
            [*TETHER, sys.executable, *command], cwd=ROOT, env=environment(broker), stdin=subprocess.DEVNULL,
            stdout=sink, stderr=sink,
        )  # fmt: skip
    try:
        yield Running(process, output)
    finally:
        process.kill()
        process.wait()


def test_the_web_shop_dead_letters_a_failing_mail_and_sends_it_after_the_fix(
    tmp_path: Path, broker: BrokerProcess
) -> None:
    broker.start()
    taken = [f"order A-{number} is stored as {number}" for number in (1, 2, 3)]
    for _ in range(2):
        assert run(broker, "examples/web_shop/shop.py").splitlines() == taken
    with running(broker, tmp_path / "mailer", "examples/web_shop/mailer.py") as mailer:
        mailer.until(r"ann@example\.com: your tea")
        mailer.until(r"bob@example\.com: your jam")
        broker.until(lambda: broker.call("GET", "/v0/topics/mails-dead")[1].get("count") == 1)
        assert mailer.stop() == 0
        assert len([line for line in mailer.printed().splitlines() if line.startswith("to ")]) == 2
    reason = run(broker, "-m", "topics_client", "read", "mails-dead")
    assert "no such address: Eve <eve@example.com>" in reason
    run(broker, "-m", "topics_client", "redrive", "mails")
    with running(broker, tmp_path / "fixed", "examples/web_shop/mailer.py", "--fixed") as mailer:
        mailer.until(r"^to eve@example\.com: your cup is on its way \(A-2, try 1\)$")
        assert mailer.stop() == 0
    assert broker.ok("GET", "/v0/topics/mails/leases")["jobs"] == []


def test_kafka_and_http_clients_read_records_of_each_other(broker: BrokerProcess) -> None:
    kafka_port = free_port()
    broker.start(kafka_port=kafka_port)
    for turn in range(2):
        printed = run(broker, "examples/kafka_beside_http.py", TOPICS_KAFKA=f"127.0.0.1:{kafka_port}").splitlines()
        offsets = (2 * turn, 2 * turn + 1)
        assert printed == [
            *(f"Kafka stored {key!r} at offset {at}" for key, at in zip((b"tea", b"jam"), offsets, strict=True)),
            f"HTTP read seq {offsets[0] + 1}: tea {{'grams': 100}}",
            f"HTTP read seq {offsets[1] + 1}: jam {{'grams': 450}}",
            f"Kafka read offset {offsets[0]}: b'tea' b'{{\"cents\":399}}'",
            f"Kafka read offset {offsets[1]}: b'jam' b'{{\"cents\":249}}'",
        ]


def ask(port: int, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    with closing(connection):
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def test_the_service_packs_each_order_once(tmp_path: Path, broker: BrokerProcess) -> None:
    broker.start()
    command = ("-m", "uvicorn", "--app-dir", "examples", "fastapi_integration:app", "--port", "0")
    headers = {"Content-Type": "application/json", "Idempotency-Key": "o-1"}
    with running(broker, tmp_path / "service", *command) as service:
        port = int(service.until(r"running on http://127\.0\.0\.1:(\d+)")[1])
        for _ in range(2):
            assert ask(port, "POST", "/orders", {"item": "tea"}, **headers) == (202, {"order": 1})
        assert ask(port, "POST", "/orders", {"item": 5}, **headers)[0] == 422
        headers["Idempotency-Key"] = "o-2"
        assert ask(port, "POST", "/orders", {"item": "jam", "pieces": 3}, **headers) == (202, {"order": 2})
        broker.until(lambda: len(ask(port, "GET", "/packed")[1]) == 2)
        service.stop()
        assert "Application shutdown complete" in service.printed()
    assert broker.ok("GET", "/v0/topics/packing/leases")["jobs"] == []


@pytest.mark.timeout(2 * FETCH_S + 2 * BROWSER_S)
def test_the_dashboard_shows_new_orders_live(tmp_path: Path, broker: BrokerProcess, chromium: str, npm: str) -> None:
    build(npm)
    with running(broker, tmp_path / "site", "examples/live_dashboard/serve.py", "0") as site:
        origin = site.until(r"^http://127\.0\.0\.1:\d+$")[0]
        broker.start(cors_origins=origin)
        run(broker, "examples/web_shop/shop.py")
        with OpenedPage(chromium, f"{origin}/?broker=http://127.0.0.1:{broker.port}", tmp_path) as page:
            page.until("document.getElementById('status')?.textContent === 'live'")
            page.until("document.getElementById('latest').rows.length === 3")
            assert "tea: 1" in page.text
            page.evaluate("document.querySelector('button').click()")
            page.until("document.body.innerText.includes('tea: 2')")
            # The page continues where it was when the broker is back.
            broker.kill()
            broker.start(cors_origins=origin, port=broker.port)
            broker.ok("POST", "/v0/topics/orders", {"records": [{"data": {"number": "<b>", "item": "<i>pen</i>"}}]})
            page.until("document.body.innerText.includes('<i>pen</i>: 1')")
            assert "tea: 2" in page.text
            assert page.evaluate("document.getElementById('latest').rows.length") == 5
