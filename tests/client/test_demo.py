"""The demonstration: its verdict, a real run, and its cleanup."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import webbrowser
import zipfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

import demo.__main__
from demo.console import is_built, open_browser
from demo.flights import data_file, flights
from demo.sending import batches
from demo.story import Outcome
from demo.verdict import Digests, Verdict
from tests.client.real_broker import PATIENCE_S, ROOT


def verdict(sent: list[bytes], found: list[bytes]) -> Verdict:
    verdict = Verdict()
    verdict.add("t", Digests(sent), Digests(found))
    return verdict


def test_equal_records_in_order_are_clean() -> None:
    assert verdict([b"a", b"b", b"b"], [b"a", b"b", b"b"]).clean


@pytest.mark.parametrize(
    ("found", "lost", "doubled", "foreign", "out_of_order"),
    [
        ([b"a", b"b"], 1, 0, 0, []),
        ([b"a", b"b", b"c", b"b", b"b"], 0, 2, 0, []),
        ([b"a", b"b", b"x"], 1, 0, 1, []),
        ([b"a", b"c", b"b"], 0, 0, 0, ["t"]),
        ([], 3, 0, 0, []),
    ],
    ids=["lost", "doubled", "damaged", "out of order", "all lost"],
)
def test_lost_duplicate_foreign_and_reordered_records_are_counted(
    found: list[bytes], lost: int, doubled: int, foreign: int, out_of_order: list[str]
) -> None:
    result = verdict([b"a", b"b", b"c"], found)
    assert not result.clean
    assert (result.lost, result.doubled, result.foreign, result.out_of_order) == (lost, doubled, foreign, out_of_order)


def test_records_with_the_same_concatenation_are_distinguished() -> None:
    assert not verdict([b"ab", b"c"], [b"a", b"bc"]).clean


def test_batches_of_a_topic_have_numbered_keys() -> None:
    cut = batches("t", [b"1", b"2", b"3"], 2)
    assert [(batch.key, batch.records) for batch in cut] == [("t/0", [b"1", b"2"]), ("t/1", [b"3"])]


def test_flights_become_json(tmp_path: Path) -> None:
    file = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("flights.csv", 'dep_time,carrier,tailnum\n517,UA,N14228\nNA,AA,NA\n5,UA,"N""1"\n')
    assert list(flights(file)) == [
        ("UA", b'{"id":0,"dep_time":517,"carrier":"UA","tailnum":"N14228"}'),
        ("AA", b'{"id":1,"dep_time":null,"carrier":"AA","tailnum":null}'),
        ("UA", b'{"id":2,"dep_time":5,"carrier":"UA","tailnum":"N\\"1"}'),
    ]
    assert [carrier for carrier, _ in flights(file, every=2)] == ["UA", "UA"]


def test_the_data_set_is_installed_for_tests() -> None:
    assert data_file().is_file()


def test_a_lost_record_is_exit_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = Outcome(records=10, found=9, write_s=1, read_s=1, verdict=Verdict(lost=1))

    async def tell(*_: object) -> Outcome:
        return outcome

    monkeypatch.setattr(demo.__main__, "tell", tell)
    result = CliRunner().invoke(demo.__main__.app, ["--quick"])
    assert result.exit_code == 1
    assert "not what was sent" in result.stdout


def test_a_directory_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert CliRunner().invoke(demo.__main__.app, ["--data-dir", str(tmp_path)]).exit_code == 2


class Served(BaseHTTPRequestHandler):
    """A broker with and one without a console."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/console" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_the_console_is_shown_only_where_it_was_built() -> None:
    with HTTPServer(("127.0.0.1", 0), Served) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert is_built(f"{url}/console")
        assert not is_built(f"{url}/nothing")
        server.shutdown()


def test_a_browser_opens_only_on_a_desktop(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def opens(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", opens)
    assert not open_browser("http://127.0.0.1/console", {"TERM": "xterm"})
    assert opened == []
    assert open_browser("http://127.0.0.1/console", {"DISPLAY": ":0"})
    assert opened == ["http://127.0.0.1/console"]


def start(data_dir: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "demo", "--quick", "--batch", "50", "--data-dir", str(data_dir)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def broker_runs(data_dir: Path) -> bool:
    """Whether the process that has locked the data directory is alive."""
    process_id = int((data_dir / ".lock").read_text().split()[0])
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_demo_loses_and_duplicates_no_record_over_kills(data_dir: Path) -> None:
    process = start(data_dir)
    shown, _ = process.communicate(timeout=2 * PATIENCE_S)
    assert process.returncode == 0, shown
    words = " ".join(shown.split())
    assert "Killed the broker (SIGKILL) with" in words
    assert "/console" in words or "`make console` builds it" in words
    for figure in ("sent 16,839", "acked 16,839", "read back 16,839", "lost 0", "doubled 0"):
        assert figure in words
    assert not broker_runs(data_dir)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminated"])
def test_an_interrupted_demonstration_leaves_no_broker_behind(data_dir: Path, number: signal.Signals) -> None:
    process = start(data_dir)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("Writing"):
            break
    assert broker_runs(data_dir)
    process.send_signal(number)
    rest = process.stdout.read()
    process.stdout.close()
    assert process.wait(PATIENCE_S) == 130
    assert "Traceback" not in rest
    assert not broker_runs(data_dir)
