"""The result of a steady load: the rate with a setting divided by the rate without."""

from __future__ import annotations

import msgspec
import pytest

from loadtest import steady
from loadtest.steady import Round, Window


def window(pace: float, p99_ms: float = 10.0, failed: int = 0) -> Window:
    return Window(
        records_per_s=pace, p99_ms=p99_ms, loop_us_per_record=1e6 / pace, cpu_us_per_record=2e6 / pace, failed=failed
    )


def test_the_median_and_the_range_of_the_rounds_are_shown() -> None:
    rounds = [
        Round(window(1000), window(500, 30.0)),
        Round(window(1000), window(900)),
        Round(window(2000), window(1600)),
    ]
    line = steady.told("cap-records", rounds)
    assert line.startswith("cap-records: x 0.80 (0.50 to 0.90) of the pace without it (900 of 1,000 records/s)")
    assert "p99 x 1.00; loop x 1.25 a record (1111.1 µs), all its threads and processes x 1.25" in line
    assert "refused" not in line


def test_refused_requests_are_shown() -> None:
    assert steady.told("ttl", [Round(window(10), window(10, failed=3))]).endswith("; 3 requests were refused")


def test_the_lag_of_routers_is_shown() -> None:
    rounds = [Round(window(10), msgspec.structs.replace(window(10), lag=lag)) for lag in (5, 1200, 0)]
    assert steady.told("fan-out", rounds).endswith("; routers are up to 1,200 records behind as a window ends")
    assert "routers" not in steady.told("ttl", [Round(window(10), window(10))])


def test_there_is_a_case_for_every_bound() -> None:
    bounds = {name for case in steady.CASES.values() for name in case.config}
    assert {"cap_records", "cap_bytes", "ttl_ms"} <= bounds
    assert any(case.deletes for case in steady.CASES.values())
    assert any(case.routers for case in steady.CASES.values())


def test_an_unknown_case_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        steady.main(["cap-recrods"])
    assert "no case 'cap-recrods': cap-records, cap-bytes" in capsys.readouterr().err
