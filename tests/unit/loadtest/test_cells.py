"""The model of `loadtest.cells`: how cores are divided between cells and gateways."""

from __future__ import annotations

import pytest

from loadtest import cell_ways
from loadtest.cells import SCENARIOS, Seen, best_split, lasting, lines, spread_lines
from loadtest.compare import ratio_of
from loadtest.scenario import Scenario, append_request


@pytest.mark.parametrize(
    ("cell_us", "gateway_us", "cores", "expected"),
    [
        (100, 100, 4, (2, 2, 20_000)),
        (300, 100, 4, (3, 1, 10_000)),
        (100, 300, 8, (2, 6, 20_000)),
        (50, 50, 2, (1, 1, 20_000)),
    ],
)
def test_cores_are_divided_for_the_highest_rate(
    cell_us: int, gateway_us: int, cores: int, expected: tuple[int, int, int]
) -> None:
    split = best_split(Seen(rate=1, cell_s=cell_us / 1e6, gateway_s=gateway_us / 1e6), cores)
    assert (split.cells, split.gateways, round(split.rate)) == expected


def test_the_report_compares_with_one_broker_on_one_core() -> None:
    alone, cells = Seen(rate=5000, cell_s=100e-6), Seen(rate=4000, cell_s=100e-6, gateway_s=100e-6)
    report = lines("append-1", alone, cells)
    assert "(x 0.80)" in report[2]
    assert "x 0.50" in report[3]
    assert "x 2.0 of one broker" in report[4]


def test_the_report_of_the_ways_has_the_ratio_to_the_cell() -> None:
    way = cell_ways.Way(
        name="through the gateway",
        program="generator",
        ratio=ratio_of("requests/s", [(1000, 800), (2000, 1700)]),
        work=ratio_of("requests/s", [(100, 90), (100, 70)]),
    )
    report = cell_ways.lines("append-100", [way])
    assert "1,500 requests/s" in report[0]
    assert "x 0.82 (0.80 to 0.85)" in report[1]
    assert "of the set x 0.80 (0.70 to 0.90)" in report[1]


def test_the_report_of_partitions_compares_with_one_partition() -> None:
    narrow = Seen(rate=2000, cell_s=100e-6, gateway_s=100e-6)
    report = spread_lines("append-100", 2, narrow, Seen(rate=3000, cell_s=100e-6, gateway_s=100e-6))
    assert "(x 1.50)" in report[2]
    assert "each of 2 cells: x 2.0 of one partition" in report[3]


def test_a_write_names_its_partition() -> None:
    scenario = Scenario(partitions=2, seqs=False)
    assert b"POST /v0/topics/t?return_seqs=false&partition=1 HTTP" in append_request(scenario, "t", "h", 1)
    assert b"POST /v0/topics/t HTTP" in append_request(Scenario(), "t", "h")


@pytest.mark.parametrize(("seconds", "warmup_s"), [(0.5, 0.5), (10, 1.0)])
def test_a_short_load_has_a_short_warm_up(seconds: float, warmup_s: float) -> None:
    found = lasting(SCENARIOS["append-1"], seconds)
    assert (found.seconds, found.warmup_s) == (seconds, warmup_s)
