"""Both versions of Helm, and the chart as they render it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support import chart, containerfile
from tests.support.chart import PACKAGES, VALUES, Document, Helm

HELM = {"helm", "helms", "default", "documents"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _leave_out(config, items, HELM, "helm", chart.refusal)
    _leave_out(config, items, {"bare_root"}, "bare root", containerfile.refusal)


def _leave_out(
    config: pytest.Config, items: list[pytest.Item], needing: set[str], what: str, refusal: Callable[[], str | None]
) -> None:
    asking = [item for item in items if needing & set(getattr(item, "fixturenames", ()))]
    reason = refusal() if asking else None
    if reason is not None:
        items[:] = [item for item in items if item not in asking]
        config.hook.pytest_deselected(items=asking)
        with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(f"\nno {what} to be had here ({reason}): {len(asking)} tests deselected", file=sys.stderr)


@pytest.fixture(scope="session")
def bare_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Debian made by debootstrap, of the release that the image is based on, in the slim variant."""
    folder = tmp_path_factory.mktemp("debian") / "root"
    subprocess.run(["debootstrap", "--variant=minbase", containerfile.suite(), str(folder)], check=True, timeout=1200)
    unwanted = [f"usr/share/{name}" for name in ("doc", "man", "info")]
    excluded = "".join(f"path-exclude=/{path}/*\n" for path in unwanted)
    (folder / "etc/dpkg/dpkg.cfg.d/slim").write_text(excluded)
    for path in unwanted:
        shutil.rmtree(folder / path, ignore_errors=True)
        (folder / path).mkdir(exist_ok=True)
    (folder / "etc/hosts").write_text("127.0.0.1 localhost\n")  # a container engine provides that
    return folder


@pytest.fixture(scope="session")
def helms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Helm]:
    folder = tmp_path_factory.mktemp("helm")
    return {version: Helm(version, folder) for version in PACKAGES}


@pytest.fixture(scope="session")
def helm(helms: dict[str, Helm]) -> Helm:
    """The newer version; another test checks that both versions render the same."""
    return helms["4"]


@pytest.fixture
def default(helm: Helm) -> Sequence[Document]:
    """The chart without any values."""
    return helm.render()


@pytest.fixture(params=VALUES, ids=lambda path: path.name)
def values(request: pytest.FixtureRequest) -> Path:
    """Each file of ci/."""
    return request.param


@pytest.fixture
def documents(helm: Helm, values: Path) -> Sequence[Document]:
    """The chart with each file of ci/."""
    return helm.render("-f", str(values))
