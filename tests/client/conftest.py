"""A fake broker for every test that asks for one, a real one, and an environment without settings from outside."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.client.fake_broker import FakeBroker, listening
from tests.client.real_broker import RealBroker
from topics_client import Client
from topics_client.cli import app


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("TOPICS_URL", "TOPICS_TOKEN", "TOPICS_CONTEXT", "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def fake() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
def fake_url(fake: FakeBroker) -> Generator[str]:
    """The URL of `fake`."""
    with listening(fake) as url:
        yield url


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Generator[RealBroker]:
    """A real broker, shared by the tests of a module."""
    broker = RealBroker(tmp_path_factory.mktemp("broker"))
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


@pytest.fixture
def client(broker: RealBroker) -> Generator[Client]:
    """A client of `broker`, which has no topics."""
    with Client(broker.url) as client:
        for topic in list(client.list_topics()):
            client.delete_topic(topic.topic)
        yield client


@pytest.fixture
def topics(broker: RealBroker) -> Callable[..., Result]:
    """Runs `topics ...` against `broker`, and expects this exit status."""

    def run(*arguments: str, status: int = 0) -> Result:
        result = CliRunner().invoke(app, list(arguments), env={"TOPICS_URL": broker.url, "COLUMNS": "200"})
        assert result.exit_code == status, result.output
        return result

    return run
