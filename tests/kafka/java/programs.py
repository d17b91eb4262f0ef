"""Kafka's own programs of one version: fetched once by Maven into a cache outside the tree, and run by the system's
JDK."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
NEWEST = "4.3.1"
#: The last line of Kafka before 4.0, which removed the oldest versions of requests.
BEFORE = "3.9.2"
FETCH_S = 500
PATIENCE_S = 240
#: A small heap and a quick start: most of these run for a second.
JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
#: Of a program that is to give up, because there is no broker.
_GIVE_UP_MS = 500


def refusal() -> str | None:
    """What is missing for these programs. None: nothing. javac compiles the sources in this folder."""
    missing = [program for program in ("mvn", "java", "javac") if shutil.which(program) is None]
    return f"{' and '.join(missing)} not installed" if missing else None


def cache() -> Path:
    """Downloads are kept here from run to run."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "topics-tests"


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Only one process of a run fetches at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def fetched(version: str) -> Path:
    """The folder of that version's jars."""
    wanted = cache() / f"kafka-{version}"
    with alone(cache()):
        if not wanted.is_dir():
            with tempfile.TemporaryDirectory(dir=cache()) as scratch:
                jars = Path(scratch, "jars")
                command = [
                    "mvn", "-q", "-B", "-f", str(FOLDER / "pom.xml"), "dependency:copy-dependencies",
                    f"-Dkafka.version={version}", "-DincludeScope=runtime", f"-DoutputDirectory={jars}",
                ]  # fmt: skip
                done = subprocess.run(
                    command, cwd=scratch, capture_output=True, text=True, timeout=FETCH_S, check=False
                )
                assert done.returncode == 0, f"Maven could not fetch Kafka {version}: {done.stdout}{done.stderr}"
                jars.rename(wanted)
    return wanted


def class_archive(version: str) -> list[str]:
    """Options of a JVM that starts with classes of the programs as an earlier JVM prepared them. That halves the
    processor time of a short program. A JVM ignores an archive that another Java or other jars made."""
    jars = fetched(version)
    java = str(Path(shutil.which("java") or "java").resolve())
    archive = cache() / f"kafka-{version}-{hashlib.sha256(java.encode()).hexdigest()[:12]}.jsa"
    with alone(cache()):
        if not archive.exists():
            with tempfile.TemporaryDirectory(dir=cache()) as scratch:
                made, config = Path(scratch, archive.name), Path(scratch, "config")
                config.write_text(f"default.api.timeout.ms={_GIVE_UP_MS}\nrequest.timeout.ms={_GIVE_UP_MS}\n")
                # It finds no broker, and has then loaded most classes that the programs use.
                lister = [
                    *("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", "127.0.0.1:1", "--list"),
                    *("--command-config", str(config)),
                ]
                done = subprocess.run(
                    ["java", *JVM, f"-XX:ArchiveClassesAtExit={made}", "-cp", f"{jars}/*", *lister],
                    cwd=scratch, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S,
                    check=False,
                )  # fmt: skip
                assert made.exists(), f"no archive of the classes of Kafka {version}: {done.stdout}{done.stderr}"
                made.rename(archive)
    # Without a line about an archive that does not fit: tests compare the output.
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable", "-Xlog:all=error:stderr"]


class Programs:
    """The programs of one version, for a broker at `address`. `folder`: for their files."""

    def __init__(self, version: str, address: str, folder: Path) -> None:
        self.version = version
        self.address = address
        self.folder = folder
        self._jars = fetched(version)
        self._archive = class_archive(version)

    @property
    def is_newest(self) -> bool:
        return self.version == NEWEST

    def command(self, *arguments: str) -> list[str]:
        return ["java", *JVM, *self._archive, f"-Djava.io.tmpdir={self.folder}", "-cp", f"{self._jars}/*", *arguments]

    def run(self, *arguments: str, patience_s: float = PATIENCE_S) -> str:
        """The output of a program, which must succeed."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience_s,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(arguments)}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def tool(self, name: str, *arguments: str) -> str:
        """The same of `org.apache.kafka.tools.NAME` with --bootstrap-server."""
        return self.run(f"org.apache.kafka.tools.{name}", "--bootstrap-server", self.address, *arguments)

    def configs(self, *arguments: str) -> str:
        return self.run("kafka.admin.ConfigCommand", "--bootstrap-server", self.address, *arguments)

    def source(self, name: str, *arguments: str) -> str:
        """A program of this folder, compiled as it starts."""
        return self.run(str(FOLDER / name), *arguments)


def schemas(version: str) -> dict[str, dict[str, Any]]:
    """Kafka's messages by name, as that version of kafka-clients ships them."""
    found: dict[str, dict[str, Any]] = {}
    with zipfile.ZipFile(fetched(version) / f"kafka-clients-{version}.jar") as jar:
        for name in jar.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                text = re.sub(r"^\s*//.*$", "", jar.read(name).decode(), flags=re.MULTILINE)
                found[Path(name).stem] = json.loads(text)
    return found
