"""A fake broker for every test that wants one, and an environment without settings from outside."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.client.fake_broker import FakeBroker, listening


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOPICS_URL", "TOPICS_TOKEN", "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def fake() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
def fake_url(fake: FakeBroker) -> Generator[str]:
    """Where `fake` listens."""
    with listening(fake) as url:
        yield url
