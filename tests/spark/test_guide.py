"""The program of the guide, as it is there, run from another folder than the checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.broker_process import ROOT
from tests.support.live_server import LiveServer
from topics_client import Client

GUIDE = ROOT / "docs/guides/spark.md"
PATIENCE_S = 240


@pytest.mark.timeout(2 * PATIENCE_S)
def test_the_program_of_the_guide_shows_the_records(tmp_path: Path, java_home: str) -> None:
    program = next(block for block in re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.M | re.S))
    with LiveServer(tmp_path / "data") as server:
        with Client(server.url) as client:
            client.append("orders", [{"item": "tea"}, {"item": "jam"}])
        address = "http://127.0.0.1:4000"
        assert address in program
        script = tmp_path / "program.py"
        script.write_text(program.replace(address, server.url).replace(".show()", ".show(truncate=False)"))
        # As after `. .venv/bin/activate`: nothing but the path says which Python it is.
        environment = {name: text for name, text in os.environ.items() if not name.startswith("PY")}
        activated = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["python3", str(script)],
            cwd=tmp_path,
            env=environment | {"PATH": activated, "JAVA_HOME": java_home, "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1].strip() for line in done.stdout.splitlines() if line.startswith("|")]
    assert rows == ["seq", "1", "2"], done.stdout
