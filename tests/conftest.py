"""What every test shares: tiers, hypothesis profiles, an empty data directory.

Warnings are errors and the order is random (`--randomly-seed=N`, which stands in the header of every run, repeats
it): see pyproject.toml and docs/testing.md.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

#: From the quickest to the slowest. A test is in the tier that its markers name, else in that of its folder.
FAST, SLOW, SOAK = TIERS = ("fast", "slow", "soak")
#: What `--tier` runs.
CHOICES = {FAST: {FAST}, SLOW: {SLOW}, "both": {FAST, SLOW}, SOAK: {FAST, SLOW, SOAK}}
#: Folders whose tests are slow unless they are marked `fast`; tests elsewhere are fast unless they are marked `slow`.
SLOW_FOLDERS = ("tests/helm", "tests/kafka/java", "tests/process", "tests/spark", "tests/walrus")
SOAK_VARIABLE = "TOPICS_TEST_SOAK"
CELLS_VARIABLE = "TOPICS_TEST_CELLS"
#: A whole run holds about half of this at its peak; a full disk would show as dozens of errors that name other things.
ROOM_NEEDED = 2 << 30
SPARK_TESTS = "tests/spark"
#: Files of few tests that take long come first, the last of these at the very beginning: the processes of a run then
#: end at about the same time. pytest-xdist itself begins with the files that have the most tests.
FIRST = (
    "tests/kernel/test_fuzz.py",
    "tests/kafka/java/test_cells.py",
    "tests/kafka/java/test_tools.py",
    "tests/process/test_cluster_without_store.py",
    "tests/process/test_reclaim_kill.py",
    "tests/process/test_resharding.py",
    "tests/process/test_router_kill.py",
    "tests/process/test_watch_sleeper.py",
    "tests/process/test_cells_bench.py",
    "tests/process/test_cells_kill.py",
    "tests/process/test_cluster.py",
    "tests/process/test_cluster_hung.py",
    "tests/process/test_cluster_kafka.py",
    "tests/process/test_cluster_orders.py",
    "tests/process/test_cluster_races.py",
    "tests/process/test_consumer_kill.py",
    "tests/process/test_examples.py",
    "tests/process/test_interfaces.py",
    "tests/process/test_kill.py",
    "tests/process/test_wheels.py",
    "tests/process/test_with_cells.py",
    "tests/http/test_generated_clients.py",
    "tests/http/test_typescript_client.py",
    "tests/helm/test_cluster_process.py",
    "tests/process/test_nodes_kill.py",
    "tests/tidy/test_linters.py",
    SPARK_TESTS,
)
#: Programs of the system, each with a fixture of its name. Tests that ask for one which is not there are left out.
PROGRAMS = {
    "kcat": ("kcat",),
    "npm": ("npm",),
    "go": ("go",),
    "cargo": ("cargo",),
    "mvn": ("mvn",),
    "cc": ("cc",),
    "make": ("make",),
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
}

# Compiled modules are kept, whatever the environment says: without them each process of a run rewrites the asserts of
# every test, and each program that a test starts compiles the broker. Both cost more than the tests themselves.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The client is imported from its folder, installed or not: here by pythonpath in pyproject.toml, in child processes so.
CLIENT = str(Path(__file__).resolve().parents[1] / "clients/python")
if CLIENT not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (CLIENT, os.environ.get("PYTHONPATH"))))

# No deadlines: a test must not fail because the machine is busy. too_slow likewise.
settings.register_profile(
    "default",
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(SOAK, settings.get_profile("default"), max_examples=3000, stateful_step_count=120)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier",
        choices=list(CHOICES),
        help="which tests run: fast (the default), slow, both, or soak: those of both and the ones marked soak, with "
        "larger samples",
    )


def pytest_configure(config: pytest.Config) -> None:
    take_interrupts()
    if config.getoption("--tier") == SOAK:
        # One switch for everything that asks, child processes included.
        os.environ[SOAK_VARIABLE] = "1"
    settings.load_profile(SOAK if is_soak(os.environ) else "default")
    if not hasattr(config, "workerinput"):  # once, before the processes of a run begin
        renew_kernel(Path(__file__).parents[1])


def take_interrupts() -> None:
    """A shell starts what runs in its background with SIGINT ignored, and child processes inherit that: programs that
    tests interrupt would go on."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def renew_kernel(root: Path) -> None:
    """Build the kernel in its place again if it was built there and its sources have changed since."""
    sources = [path.stat().st_mtime for path in (root / "kernel/src").glob("*")]
    built = [path.stat().st_mtime for path in (root / "kernel").glob("_compiled*.so")]
    if built and max(sources) > min(built) and shutil.which("cc"):
        subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=root, check=True)


def is_soak(environment: Mapping[str, str]) -> bool:
    """Whether samples are large and tests marked `soak` run: the variable is set, and neither empty nor 0."""
    return environment.get(SOAK_VARIABLE, "") not in ("", "0")


def chosen_tier(config: pytest.Config) -> str:
    """One of `CHOICES`."""
    return config.getoption("--tier") or (SOAK if is_soak(os.environ) else FAST)


def tier_of(item: pytest.Item) -> str:
    """That of the closest marker (the slowest, where a test and its case have one each), else that of the folder."""
    for node in reversed(item.listchain()):
        marked = [tier for tier in TIERS if any(mark.name == tier for mark in node.own_markers)]
        if marked:
            return marked[-1]
    return SLOW if item.nodeid.startswith(tuple(f"{folder}/" for folder in SLOW_FOLDERS)) else FAST


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file without a test of the chosen tier is not imported: each process of a run would do that. Files named on the
    command line are."""
    if not (collection_path.name.startswith("test_") and collection_path.suffix == ".py"):
        return None
    path = collection_path.relative_to(config.rootpath).as_posix()
    own, other = (SLOW, FAST) if path.startswith(tuple(f"{folder}/" for folder in SLOW_FOLDERS)) else (FAST, SLOW)
    if own in CHOICES[chosen_tier(config)]:
        return None
    return None if names_tier(collection_path.read_text(), other, modules_with(other, config.rootpath)) else True


def names_tier(text: str, tier: str, modules: Collection[str]) -> bool:
    """Whether a source has a marker of the tier, or the name of one of these modules, from which it may get one."""
    return f"mark.{tier}" in text or any(module in text for module in modules)


@cache
def modules_with(tier: str, root: Path) -> Collection[str]:
    """The names of the modules beside the tests of which `names_tier` is true."""
    sources = [
        (each.stem, each.read_text()) for each in root.glob("tests/**/*.py") if not each.stem.startswith("test_")
    ]
    found: set[str] = set()
    while more := {name for name, text in sources if name not in found and names_tier(text, tier, found)}:
        found |= more
    return found


def pytest_report_header(config: pytest.Config) -> list[str]:
    """What runs, where tests write, and what is free there."""
    folder = tempfile.gettempdir()
    others = ", ".join(choice for choice in CHOICES if choice != chosen_tier(config))
    return [
        f"tier: {chosen_tier(config)} (others with --tier: {others})",
        f"temporary files: {folder}, {shutil.disk_usage(folder).free / (1 << 30):.1f} GiB free",
    ]


def pytest_sessionstart() -> None:
    """Raises pytest.exit.Exception when the disk has too little room for a run."""
    folder = tempfile.gettempdir()
    if (free := shutil.disk_usage(folder).free) < ROOM_NEEDED:
        what = f"{folder} has {free >> 20} MiB free, the tests need up to {ROOM_NEEDED >> 20}: make room, or set TMPDIR"
        pytest.exit(what, returncode=pytest.ExitCode.USAGE_ERROR)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before those of the folders, which look for what their tests need and say what is missing."""
    wanted = CHOICES[chosen_tier(config)]
    chosen: list[pytest.Item] = []
    excluded: list[pytest.Item] = []
    for item in items:
        (chosen if tier_of(item) in wanted else excluded).append(item)
    if excluded:
        items[:] = chosen
        config.hook.pytest_deselected(items=excluded)
    _leave_out_io_uring(config, items)
    _leave_out_missing_programs(config, items)
    if cells_asked_for() > 1:
        _leave_out_one_cell(config, items)


def cells_asked_for() -> int:
    """How many cells a broker of the tests has (`TOPICS_TEST_CELLS`). 1: it is a single process."""
    return int(os.environ.get(CELLS_VARIABLE) or 1)


def _leave_out_one_cell(config: pytest.Config, items: list[pytest.Item]) -> None:
    reasons: dict[str, list[pytest.Item]] = {}
    for item in items:
        for mark in item.iter_markers("one_cell"):
            reasons.setdefault(mark.args[0], []).append(item)
            break
    for reason, asking in reasons.items():
        leave_out(config, items, asking, f"not with several cells ({reason})")


def _leave_out_missing_programs(config: pytest.Config, items: list[pytest.Item]) -> None:
    for program in PROGRAMS:
        asking = [item for item in items if program in getattr(item, "fixturenames", ())]
        if asking and program == "npm" and installed(program) is None:
            _provide_node()
        if asking and installed(program) is None:
            leave_out(config, items, asking, f"{program} is not installed")


def _provide_node() -> None:
    from tests.support.node import provide

    provide()


def _leave_out_io_uring(config: pytest.Config, items: list[pytest.Item]) -> None:
    asking = [item for item in items if item.get_closest_marker("io_uring")]
    reason = _io_uring_refusal() if asking else None
    if reason is not None:
        leave_out(config, items, asking, f"no io_uring to be had here ({reason})")


def leave_out(config: pytest.Config, items: list[pytest.Item], asking: list[pytest.Item], reason: str) -> None:
    """And say so."""
    items[:] = [item for item in items if item not in asking]
    config.hook.pytest_deselected(items=asking)
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{reason}: {len(asking)} tests deselected", file=sys.stderr)


def _io_uring_refusal() -> str | None:
    from tests.support.backends import refusal

    return refusal()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each test file runs in one process; all of tests/spark in the same one, so that there is one Spark session."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneSession(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            scope = super()._split_scope(nodeid)
            return SPARK_TESTS if scope.startswith(f"{SPARK_TESTS}/") else scope

        def _assign_work_unit(self, node: Any) -> None:
            for scope in FIRST:
                if scope in self.workqueue:
                    self.workqueue.move_to_end(scope, last=False)
            super()._assign_work_unit(node)

    return OneSession(config, log)


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """A command that a test runs in its own process sets up the logs: the next test finds them as they were."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(scope="session", autouse=True)
def _backend_asked_for() -> Iterator[None]:
    """See `tests/support/backends.py`."""
    backend = os.environ.get("TOPICS_TEST_BACKEND", "")
    if not backend:
        yield
        return
    from tests.support.backends import everywhere

    with everywhere(backend):
        yield


def installed(program: str) -> str | None:
    """Where one of `PROGRAMS` is; None: nowhere."""
    return next(filter(None, map(shutil.which, PROGRAMS[program])), None)


def _found(program: str) -> str:
    found = installed(program)
    assert found is not None
    return found


@pytest.fixture
def kcat() -> str:
    """The program."""
    return _found("kcat")


@pytest.fixture
def npm() -> str:
    """The program, which node comes with."""
    return _found("npm")


@pytest.fixture
def go() -> str:
    """The program."""
    return _found("go")


@pytest.fixture
def cargo() -> str:
    """The program."""
    return _found("cargo")


@pytest.fixture
def mvn() -> str:
    """The program that fetches jars."""
    return _found("mvn")


@pytest.fixture
def cc() -> str:
    """The compiler of C."""
    return _found("cc")


@pytest.fixture
def make() -> str:
    """The program."""
    return _found("make")


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser."""
    return _found("chromium")


@pytest.fixture
def soak_mode() -> bool:
    """Whether a sweep may take its time (`pytest --tier soak`)."""
    return is_soak(os.environ)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A path for a data directory of this test's own; nothing is there yet."""
    return tmp_path / "data"
