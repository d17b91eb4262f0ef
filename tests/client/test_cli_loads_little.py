"""The modules that a command imports: imports take most of the time of a short command."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.client.real_broker import RealBroker
from tests.support.broker_process import ROOT
from topics_client import Client

#: Each of these takes longer to load than a command takes to run.
HEAVY = ("asyncio", "email", "http.client", "httpx", "pydantic", "rich", "tempfile", "typer")
CODE = f"""
import sys
from topics_client.cli import app
app.main(sys.argv[1:], standalone_mode=False)
print(*[name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments",
    [["list"], ["read", "t"], ["get", "t", "1"], ["state", "t"], ["status"], ["append", "t", "-d", "1"]],
    ids=lambda arguments: arguments[0],
)
def test_a_short_command_loads_no_large_library(broker: RealBroker, client: Client, arguments: list[str]) -> None:
    client.append("t", [1])
    environment = {**os.environ, "TOPICS_URL": broker.url, "PYTHONPATH": str(ROOT / "clients/python")}
    done = subprocess.run(
        [sys.executable, "-c", CODE, *arguments],
        env=environment,
        text=True,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stdout
    assert done.stderr == "\n"


def test_names_of_topics_complete(broker: RealBroker, client: Client) -> None:
    for topic in ("orders", "orders-eu", "mails"):
        client.put_topic(topic)
    environment = {
        **os.environ,
        "TOPICS_URL": broker.url,
        "PYTHONPATH": str(ROOT / "clients/python"),
        "_TOPICS_COMPLETE": "bash_complete",
        "COMP_WORDS": "topics read or",
        "COMP_CWORD": "2",
    }
    command = [sys.executable, "-c", "from topics_client.cli import main; main()"]
    done = subprocess.run(command, env=environment, text=True, capture_output=True, timeout=60, check=False)
    assert done.stdout.split() == ["plain,orders", "plain,orders-eu"], done.stderr
    # Completion does not wait for a broker that is not running.
    environment["TOPICS_URL"] = "http://127.0.0.1:1"
    done = subprocess.run(command, env=environment, text=True, capture_output=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == ("", "")
