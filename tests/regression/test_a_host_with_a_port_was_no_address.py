"""TOPICS_HOST=127.0.0.1:4001, as in some migrated set-ups, was treated as a host name."""

from __future__ import annotations

import pytest

from broker.settings import Settings


@pytest.mark.parametrize(
    ("given", "port", "expected"),
    [
        ("127.0.0.1:4001", None, ("127.0.0.1", 4001)),
        ("localhost:4001", "4002", ("localhost", 4002)),
        ("[::1]:4001", None, ("::1", 4001)),
        ("[::1]", None, ("::1", 4000)),
        ("::1", None, ("::1", 4000)),
        ("0.0.0.0", None, ("0.0.0.0", 4000)),
    ],
)
def test_a_host_may_contain_the_port(
    given: str, port: str | None, expected: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPICS_HOST", given)
    if port is None:
        monkeypatch.delenv("TOPICS_PORT", raising=False)
    else:
        monkeypatch.setenv("TOPICS_PORT", port)
    settings = Settings()
    assert (settings.host, settings.port) == expected


def test_an_invalid_port_in_the_host_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_HOST", "localhost:http")
    monkeypatch.delenv("TOPICS_PORT", raising=False)
    with pytest.raises(ValueError, match="port"):
        Settings()
