"""The `topics` program as a separate process: pipes, terminals, signals."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.client.fake_broker import FakeBroker, Trouble
from topics_client.commands.terminal import ExitCode

PROGRAM = [sys.executable, "-m", "topics_client"]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def environment(fake_url: str) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONUNBUFFERED": "",
        "TOPICS_URL": fake_url,
        "TERM": "xterm-256color",
        "PYTHONWARNINGS": "error",
    }


def start(environment: dict[str, str], *arguments: str, **streams: int) -> subprocess.Popen[bytes]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.Popen([*PROGRAM, *arguments], env=environment, cwd=ROOT, **pipes)


def on_terminal(environment: dict[str, str], *arguments: str, typed: bytes = b"") -> tuple[int, str]:
    """Run the program with a terminal for all three streams; returns its exit status and output."""
    controller, terminal = pty.openpty()
    process = start(environment, *arguments, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    os.write(controller, typed)
    shown = bytearray()
    while True:
        try:
            chunk = os.read(controller, 65536)
        except OSError:
            # Linux says EIO when the last process that had the terminal is gone.
            break
        shown += chunk
    os.close(controller)
    return process.wait(), shown.decode()


def test_output_into_a_pipe_has_no_colours(environment: dict[str, str], fake: FakeBroker) -> None:
    fake.append("t", b'{"records":[{"data":1}]}')
    for command in (["read", "t"], ["list"], ["state", "nope"]):
        out, err = start(environment, *command).communicate()
        assert b"\x1b" not in out + err, command


def test_a_terminal_gets_colours_unless_no_color_is_set(environment: dict[str, str], fake: FakeBroker) -> None:
    fake.append("t", b'{"records":[{"data":1}]}')
    status, shown = on_terminal(environment, "read", "t")
    assert status == 0
    assert "\x1b[" in shown
    assert "\x1b[" not in on_terminal({**environment, "NO_COLOR": "1"}, "read", "t")[1]


def test_delete_asks_on_a_terminal(environment: dict[str, str], fake: FakeBroker) -> None:
    fake.append("t", b'{"records":[{"data":1},{"data":2}]}')
    status, shown = on_terminal(environment, "delete", "t", typed=b"n\n")
    assert status == ExitCode.REFUSED
    assert "Delete t (2 records" in shown
    assert "t" in fake.topics
    assert on_terminal(environment, "delete", "t", typed=b"y\n")[0] == 0
    assert fake.topics == {}


def test_append_shows_progress_only_on_a_terminal(
    environment: dict[str, str], fake: FakeBroker, tmp_path: Path
) -> None:
    lines = tmp_path / "lines.ndjson"
    lines.write_text("1\n" * 3000)
    status, shown = on_terminal(environment, "append", "t", str(lines))
    assert (status, len(fake.topics["t"].records)) == (0, 3000)
    assert "Appending to t" in shown
    assert "Appended 3,000 records to t" in shown
    assert start(environment, "append", "t", str(lines)).communicate()[1] == b""


def test_a_closed_pipe_ends_the_program_without_a_message(environment: dict[str, str], fake: FakeBroker) -> None:
    records = ",".join(f'{{"data":"{"x" * 200}"}}' for _ in range(5000))
    fake.append("t", f'{{"records":[{records}]}}'.encode())
    process = start(environment, "read", "t")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait() == ExitCode.BROKEN_PIPE
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.stdin is not None
    process.stdin.close()


@pytest.mark.parametrize("arguments", [["tail", "t"], ["append", "t"]], ids=["tail", "append"])
def test_an_interrupt_is_exit_status_130_without_a_traceback(
    environment: dict[str, str], fake: FakeBroker, arguments: list[str]
) -> None:
    fake.append("t", b'{"records":[{"data":1}]}')
    begun = threading.Event()
    fake.troubles.append(_setting(begun))
    process = start(environment, *arguments)
    assert begun.wait(30)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == ExitCode.INTERRUPTED
    assert b"Interrupted" in err
    assert b"Traceback" not in err


def _setting(event: threading.Event) -> Trouble:
    def answer(request: httpx.Request, proceed: Callable[[], httpx.Response]) -> httpx.Response:
        response = proceed()
        event.set()
        return response

    return answer


def test_a_line_of_a_slow_writer_is_sent_without_waiting_for_more(
    environment: dict[str, str], fake: FakeBroker
) -> None:
    stored = threading.Event()
    fake.troubles.extend([None, _setting(stored)])
    process = start(environment, "append", "t")
    assert process.stdin is not None
    process.stdin.write(b'{"only":"one"}\n')
    process.stdin.flush()
    assert stored.wait(30)
    process.communicate()
    assert len(fake.topics["t"].records) == 1


def test_stdout_has_only_the_answer(environment: dict[str, str]) -> None:
    out, err = start(environment, "append", "t", "--json").communicate(b"1\n2\n")
    assert json.loads(out)["records"] == 2
    assert err == b""


def test_a_line_that_is_not_utf8_is_reported_as_invalid_json(environment: dict[str, str]) -> None:
    process = start(environment, "append", "t")
    _, err = process.communicate(b'1\n"\xff"\n')
    assert process.returncode == ExitCode.USAGE
    assert b"Line 2 is not valid JSON: it is not UTF-8 (byte 1)." in err


def test_an_ascii_terminal_gets_other_characters_as_escapes(environment: dict[str, str], fake: FakeBroker) -> None:
    fake.append("t", '{"records":[{"data":"é"}]}'.encode())
    process = start({**environment, "PYTHONIOENCODING": "ascii"}, "read", "t")
    out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert out.endswith(b'"\\xe9"\n')


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_a_closed_stdout_ends_with_broken_pipe_and_no_traceback(environment: dict[str, str], unbuffered: str) -> None:
    process = start(environment | {"PYTHONUNBUFFERED": unbuffered}, "append", "t", "-d", "1")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait() == ExitCode.BROKEN_PIPE
