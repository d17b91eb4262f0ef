"""Both Helms, and the chart as they render it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.chart import PACKAGES, VALUES, Document, Helm, refusal

NEEDING = {"helm", "helms", "default", "documents"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asking = [item for item in items if NEEDING & set(getattr(item, "fixturenames", ()))]
    reason = refusal() if asking else None
    if reason is not None:
        items[:] = [item for item in items if item not in asking]
        config.hook.pytest_deselected(items=asking)
        with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(f"\nno helm to be had here ({reason}): {len(asking)} tests deselected", file=sys.stderr)


@pytest.fixture(scope="session")
def helms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Helm]:
    folder = tmp_path_factory.mktemp("helm")
    return {version: Helm(version, folder) for version in PACKAGES}


@pytest.fixture(scope="session")
def helm(helms: dict[str, Helm]) -> Helm:
    """The newer one; that both render the same is a test of its own."""
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
