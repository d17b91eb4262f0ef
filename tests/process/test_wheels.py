"""The wheels, installed with their dependencies beside a program whose packages have the same names as ours."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.console.built import build
from tests.support.broker_process import PATIENCE_S, ROOT, BrokerProcess

OWN = ("broker", "client", "kernel", "pipeline", "schemas", "storage")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def run(*command: str | Path, cwd: Path, check: bool = True, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in an environment that leads to no checkout."""
    kept = {
        name: value for name, value in os.environ.items() if name != "PYTHONPATH" and not name.startswith("TOPICS_")
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=kept | variables,
        text=True,
        capture_output=True,
        timeout=280,
    )
    assert done.returncode == 0 or not check, f"{command}: {done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both wheels by the name of their distribution."""
    made = tmp_path_factory.mktemp("wheels")
    # Built from a copy, because the build writes into its tree.
    source = made / "source"
    tracked = run(
        "git", "ls-files", "-z", "--", *("*.py", "*.toml", "*.c", "*.h", "*.md", "*.typed", "*LICENSE"), cwd=ROOT
    )
    for name in filter(None, tracked.stdout.split("\0")):
        if not name.startswith(("tests/", "docs/")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    shutil.copytree(build(), source / "broker/console/static")
    for folder in (source / "clients/python", source):
        run(*PIP, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", made, folder, cwd=made)
    return {path.name.partition("-")[0]: path for path in made.glob("*.whl")}


@pytest.fixture(scope="module")
def program(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with both wheels and the packages of OWN; its `bin` folder."""
    home = tmp_path_factory.mktemp("program")
    venv.create(home, with_pip=False)
    python = home / "bin/python"
    lock = ROOT / "requirements.lock"
    asked = [f"{wheels['topics_client']}[cli]", f"{wheels['topics_broker']}[kafka]"]
    run(*PIP, "--python", python, "install", "-q", "-c", lock, *asked, cwd=home)
    [site] = home.glob("lib/python*/site-packages")
    for name in OWN:
        (site / name).mkdir()
        (site / name / "__init__.py").write_text("MINE = True\n")
    return home / "bin"


def top_level(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" not in name}


def test_wheels_take_no_common_name(wheels: dict[str, Path]) -> None:
    assert top_level(wheels["topics_broker"]) == {"topics_broker", "pyspark_topics.py"}
    assert top_level(wheels["topics_client"]) == {"topics_client"}


def test_the_wheel_has_the_console_and_the_installed_broker_serves_it(
    wheels: dict[str, Path], program: Path, tmp_path: Path
) -> None:
    folder = "topics_broker/broker/console/static/"
    with zipfile.ZipFile(wheels["topics_broker"]) as archive:
        found = {name.removeprefix(folder) for name in archive.namelist() if name.startswith(folder)}
    assert {"index.html", "index.html.gz"} < found
    with BrokerProcess(tmp_path, program=program / "topics-broker") as broker:
        broker.start()
        with httpx.Client(base_url=f"http://127.0.0.1:{broker.port}", timeout=PATIENCE_S) as http:
            page = http.get("/console").raise_for_status().text
            [script] = re.findall(r'src="(console/app-\w+\.js)"', page)
            assert f"{script.rpartition('/')[2]}.gz" in found
            assert len(http.get(f"/{script}").raise_for_status().content) > 10_000
        broker.stop()


def test_no_module_of_the_wheel_imports_by_a_short_name(program: Path, tmp_path: Path) -> None:
    # The packages of OWN have nothing that ours could use, so a leftover import would fail here.
    code = """
import importlib, pkgutil, topics_broker
extras = {"deltalake", "numpy", "obstore", "opentelemetry", "pyarrow", "pyspark", "typer"}
for each in pkgutil.walk_packages(topics_broker.__path__, "topics_broker."):
    try:
        if not each.name.endswith("__main__"):
            importlib.import_module(each.name)
    except ModuleNotFoundError as error:
        # Of extras that this environment was not installed with.
        assert error.name.partition(".")[0] in extras, error
import broker, client, kernel, pipeline, schemas, storage
assert all(each.MINE for each in (broker, client, kernel, pipeline, schemas, storage))
from topics_broker import kernel as ours
print(ours.COMPILED, ours.REASON)
import traceback
from topics_broker.pipeline import errors
try:
    raise errors.DataLoss.__new__(errors.DataLoss, "gone")
except errors.PipelineError:
    # As a driver of Spark gets the error of a task.
    print(type(errors.error_in(traceback.format_exc())).__name__)
"""
    (tmp_path / "walk.py").write_text(code)
    assert run(program / "python", "walk.py", cwd=tmp_path).stdout == "True \nDataLoss\n"


def test_installed_broker_keeps_records_over_a_kill(program: Path, tmp_path: Path) -> None:
    def topics(*arguments: str, url: str) -> Any:
        done = run(program / "python", "-I", program / "topics", *arguments, "--json", cwd=tmp_path, TOPICS_URL=url)
        return [json.loads(line) for line in done.stdout.splitlines()]

    with BrokerProcess(tmp_path, program=program / "topics-broker") as broker:
        broker.start()
        url = f"http://127.0.0.1:{broker.port}"
        topics("put", "t", "--durability", "fsync", url=url)
        topics("append", "t", "--data", '{"n": 1}', url=url)
        broker.kill()
        broker.start()
        [record] = topics("read", "t", url=f"http://127.0.0.1:{broker.port}")
        assert record["data"] == {"n": 1}
        broker.stop()
    checked = run(program / "python", "-m", "topics_broker.storage", "verify", broker.data_dir, cwd=tmp_path)
    assert "no problem" in checked.stdout.lower()
    told = run(program / "python", "-m", "topics_broker.storage", "--help", cwd=tmp_path).stdout
    assert told.startswith("usage: python -m topics_broker.storage ")


def test_client_alone_needs_no_broker_and_no_terminal_library(wheels: dict[str, Path], tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env/bin/python"
    lock = ROOT / "requirements.lock"
    run(*PIP, "--python", python, "install", "-q", "-c", lock, str(wheels["topics_client"]), cwd=tmp_path)
    unwanted = "{'rich', 'typer', 'pydantic', 'fastapi'}"
    code = f"import sys, topics_client; topics_client.Client; print(*{unwanted} & {{*sys.modules}})"
    assert run(python, "-c", code, cwd=tmp_path).stdout == "\n"
    [site] = (tmp_path / "env").glob("lib/python*/site-packages")
    assert not [*site.glob("typer*"), *site.glob("topics_broker*")]
    assert (site / "topics_client/py.typed").exists()
