"""librdkafka's unchanged tests of committed offsets and of administration, run against this broker.

In the soak tier only: cargo fetches the sources, in the crate that ships them, and they are built once, which takes
minutes; the result stays in the cache. Test 0081 leaves out unsupported features (docs/guides/kafka.md): ACLs, SCRAM,
and changing a running broker's settings, which is a part of both of its tests that alter settings.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.groups.server import Server
from tests.kafka.java.programs import cache

SOURCES = Path(__file__).resolve().parent / "walks" / "librdkafka"
CRATE = "rdkafka-sys"
BUILD_S, PATIENCE_S = 1200, 240
#: Built in, because the versions found on systems differ.
WITHOUT = ("--disable-ssl", "--disable-gssapi", "--disable-curl", "--disable-zstd", "--disable-lz4-ext")
#: The version of Kafka that it takes this broker for.
VERSION, GROUPS_VERSION = "3.9.0", "4.0.0"
#: The settings that its tests expect of a topic that is created by producing to it.
PARTITIONS = 4
#: Producing, offsets and their resets, rebalances of all kinds, topics that are created and deleted.
OTHERS = [
    "0008", "0011", "0012", "0014", "0015", "0017", "0022", "0029", "0030", "0031", "0033", "0041", "0048", "0050",
    "0051", "0054", "0056", "0059", "0061", "0069", "0073", "0082", "0102", "0107", "0113", "0118", "0130", "0132",
    "0137",
]  # fmt: skip

pytestmark = [pytest.mark.soak, pytest.mark.timeout(BUILD_S + PATIENCE_S + 60)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "data", kafka_min_session_ms=1000, kafka_auto_partitions=PARTITIONS) as server:
        yield server


def done(command: list[str], folder: Path, patience_s: float, **environment: str) -> None:
    """Runs a program that must succeed."""
    found = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, errors="replace", timeout=patience_s, check=False,
    )  # fmt: skip
    assert found.returncode == 0, (found.stdout + found.stderr)[-20_000:]


@pytest.fixture(scope="session")
def suite() -> Path:
    """The folder of its tests, compiled."""
    built = cache() / "librdkafka"
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / ".librdkafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (built / "tests" / "test-runner").exists():
            shutil.rmtree(built, ignore_errors=True)
            scratch = Path(shutil.copytree(SOURCES, cache() / "librdkafka-sources", dirs_exist_ok=True))
            done(["cargo", "vendor", "--quiet"], scratch, BUILD_S)
            shutil.copytree(scratch / "vendor" / CRATE / "librdkafka", built)
            shutil.rmtree(scratch)
            done(["./configure", *WITHOUT], built, BUILD_S)
            for folder in ("src", "src-cpp"):
                done(["make", "-j2", "-C", folder], built, BUILD_S)
            done(["make", "-j2", "-C", "tests", "build"], built, BUILD_S)
    return built / "tests"


@pytest.mark.parametrize(
    ("test", "part"),
    [
        ("0099", ""),
        ("0140", ""),
        ("0081", "ConsumerGroup"),
        ("0081", "DeleteGroups"),
        ("0081", "ListOffsets"),
        ("0081", "DeleteRecords"),
        ("0081", "Topics"),
        ("0081", "CreatePartitions"),
        ("0081", "DescribeCluster"),
        ("0081", "DescribeConfigs"),
    ],
)
@pytest.mark.usefixtures("cargo", "cc", "make")
def test_librdkafka_passes_tests_of_groups_and_admin_calls(
    server: Server, suite: Path, tmp_path: Path, test: str, part: str
) -> None:
    """`part`: the common part of the tests' names."""
    # Groups have settings since the version with share groups.
    version = GROUPS_VERSION if part == "DescribeConfigs" else VERSION
    run(server, suite, tmp_path, TESTS=test, SUBTESTS=part, TEST_KAFKA_VERSION=version)


@pytest.mark.parametrize("test", OTHERS)
@pytest.mark.usefixtures("cargo", "cc", "make")
def test_librdkafka_passes_other_tests_in_quick_mode(server: Server, suite: Path, tmp_path: Path, test: str) -> None:
    run(server, suite, tmp_path, "-Q", TESTS=test)


def run(server: Server, suite: Path, folder: Path, *flags: str, **chosen: str) -> None:
    (folder / "test.conf").write_text(f"bootstrap.servers={server.address}\n")
    libraries = f"{suite.parent / 'src'}:{suite.parent / 'src-cpp'}"
    command = [str(suite / "test-runner"), "-p1", *flags]
    done(command, folder, PATIENCE_S, **{"TEST_KAFKA_VERSION": VERSION, "LD_LIBRARY_PATH": libraries, **chosen})
