"""A short TOPICS_CLUSTER_SECRET was refused because of "32 items". Nothing said of what, or how to make one."""

from __future__ import annotations

import pytest

from broker.settings import SettingsError, load


def test_a_short_secret_is_refused_with_its_length_and_how_to_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_CLUSTER_SECRET", "short-and-private")
    with pytest.raises(SettingsError) as refused:
        load()
    message = str(refused.value)
    assert "17 characters, and needs 32 or more" in message
    assert "openssl rand -hex 32" in message
    assert "TOPICS_CLUSTER_SECRET" in message
    assert "private" not in message
