"""A measurement announces its work: seconds pass before the first figure."""

from __future__ import annotations

from typing import NoReturn

import pytest

from loadtest import bench
from loadtest.own_broker import BrokerFailed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--batch", "10"], "append-fsync-10-64c: 10 s of load after 1 s of warm-up ...\nno broker\n"),
        (["--against", ".", "--rounds", "3"], "append-fsync-100-64c: 6 times 10 s of load after 1 s of warm-up ...\n"),
        (["--json"], "no broker\n"),
    ],
)
def test_a_measurement_is_announced_before_it_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    def failing(*_: object) -> NoReturn:
        raise BrokerFailed("no broker")

    monkeypatch.setattr(bench, "_run", failing)
    assert bench.main(options) == 1
    assert capsys.readouterr().err.startswith(said)
