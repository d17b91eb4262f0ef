"""The Java with which Spark is started."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pipeline.session import java_version, provide_java, settings, wrap_java


def fake_java(path: Path, version: str) -> Path:
    """Prints its version, and its other arguments."""
    path.parent.mkdir(parents=True)
    path.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2\nprintf \'%s\\n\' "$@"\n'
    )
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(("said", "number"), [("17.0.15", 17), ("1.8.0_292", 8), ("25", 25)])
def test_java_version_is_parsed(tmp_path: Path, said: str, number: int) -> None:
    assert java_version(str(fake_java(tmp_path / "bin" / "java", said))) == number


def test_a_program_other_than_java_has_version_0(tmp_path: Path) -> None:
    assert java_version(str(tmp_path / "absent")) == 0


def test_wrapper_removes_only_the_missing_module(tmp_path: Path) -> None:
    java = fake_java(tmp_path / "jdk" / "bin" / "java", "25")
    home = wrap_java(str(java), tmp_path / "home")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "-cp", ""]
    said = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["-Xmx1g", "a b", "-cp", ""]


def test_system_java_is_preferred_if_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "new" / "bin" / "java", "21")
    fake_java(tmp_path / "old" / "bin" / "java", "11")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    assert provide_java(tmp_path / "made") == str(tmp_path / "new")
    monkeypatch.setenv("PATH", f"{tmp_path / 'new' / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    assert provide_java(tmp_path / "made") == str(tmp_path / "new")


def test_java_of_the_package_is_used_if_the_system_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr("shutil.which", lambda _name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    home = provide_java(tmp_path / "made")
    assert home == str(tmp_path / "made")
    assert java_version(f"{home}/bin/java") >= 17


def test_local_session_listens_only_on_loopback() -> None:
    assert settings("local[2]")["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.host" not in settings("spark://cluster:7077")
