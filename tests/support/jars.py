"""Jars that Maven fetches once, into the cache outside the tree that Kafka's own programs are in."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.kafka.java.programs import FETCH_S, alone, cache

#: Nothing is built, and nothing but these jars is fetched: Spark has the others.
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>topics.tests</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <dependencies>{}</dependencies>
</project>
"""
_ONE = """
    <dependency>
      <groupId>{}</groupId>
      <artifactId>{}</artifactId>
      <version>{}</version>{}
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>"""


def jars(name: str, coordinates: Sequence[str]) -> str:
    """The paths of the jars, as Spark's setting spark.jars takes them.

    `coordinates`: group:artifact:version of each, and :classifier if it has one. `name`: of the folder in the cache;
    changed coordinates need another.
    """
    wanted = cache() / name
    with alone(cache()):
        if not wanted.is_dir():
            with tempfile.TemporaryDirectory(dir=cache()) as scratch:
                pom, made = Path(scratch, "pom.xml"), Path(scratch, "jars")
                pom.write_text(_POM.format("".join(map(_dependency, coordinates))))
                command = [
                    "mvn",
                    "-q",
                    "-B",
                    "-f",
                    str(pom),
                    "dependency:copy-dependencies",
                    f"-DoutputDirectory={made}",
                ]
                done = subprocess.run(
                    [*command, f"-DoutputDirectory={made}"],
                    cwd=scratch,
                    capture_output=True,
                    text=True,
                    timeout=FETCH_S,
                    check=False,
                )
                assert done.returncode == 0, f"Maven could not fetch {name}: {done.stdout}{done.stderr}"
                made.rename(wanted)
    found = sorted(wanted.glob("*.jar"))
    assert len(found) == len(coordinates), found
    return ",".join(map(str, found))


def _dependency(coordinates: str) -> str:
    group, artifact, version, *classifiers = coordinates.split(":")
    return _ONE.format(group, artifact, version, "".join(f"<classifier>{each}</classifier>" for each in classifiers))
