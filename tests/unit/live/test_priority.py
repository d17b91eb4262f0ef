"""The order of deliveries."""

from __future__ import annotations

import pytest

from broker.scheduling.deliveries import (
    AGEING_MS,
    FORGOTTEN_MS,
    HALF_LIFE_MS,
    WEIGHTS,
    Bands,
    band_of,
    effective_priority,
)

NOW = 1_000_000_000


def automatic(age_ms: int | None, *, auto: bool = True) -> int:
    last = None if age_ms is None else NOW - age_ms
    return effective_priority(None, auto=auto, last_write_ts=last, now_ms=NOW)


@pytest.mark.parametrize("priority", [-1000, -1, 0, 7, 1000])
def test_a_configured_priority_overrides_the_automatic_priority(priority: int) -> None:
    assert effective_priority(priority, auto=True, last_write_ts=NOW, now_ms=NOW) == priority


@pytest.mark.parametrize(
    ("age_ms", "priority"),
    [
        (0, 100),
        (HALF_LIFE_MS, 50),
        (2 * HALF_LIFE_MS, 25),
        (FORGOTTEN_MS - 1, 0),
        (FORGOTTEN_MS, 0),
        (-5, 100),
        (None, 0),
    ],
)
def test_an_automatic_priority_halves_every_half_life(age_ms: int | None, priority: int) -> None:
    assert automatic(age_ms) == priority


def test_an_automatic_priority_is_zero_after_seven_half_lives() -> None:
    assert automatic(7 * HALF_LIFE_MS) == 1
    assert automatic(FORGOTTEN_MS) == 0


def test_without_automatic_priority_the_priority_is_zero() -> None:
    assert automatic(0, auto=False) == 0


@pytest.mark.parametrize(
    ("priority", "band"), [(-1000, 0), (-1, 0), (0, 1), (49, 1), (50, 2), (499, 2), (500, 3), (1000, 3)]
)
def test_a_priority_maps_to_its_band(priority: int, band: int) -> None:
    assert band_of(priority) == band


def test_within_a_band_order_is_first_in_first_out() -> None:
    bands: Bands[int] = Bands()
    for number in range(5):
        bands.add(number, 0, NOW)
    assert [bands.take(NOW) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert len(bands) == 0


def taken(priorities: list[int], turns: int, now_ms: float = NOW) -> dict[int, int]:
    """How often each gets a turn, if each always has something new waiting."""
    bands: Bands[int] = Bands()
    for priority in priorities:
        bands.add(priority, priority, now_ms)
    counts = dict.fromkeys(priorities, 0)
    for _ in range(turns):
        priority = bands.take(now_ms)
        counts[priority] += 1
        bands.add(priority, priority, now_ms)
    return counts


def test_turns_are_as_the_weights_are() -> None:
    assert taken([-1, 0, 50, 500], 10 * sum(WEIGHTS)) == dict(
        zip([-1, 0, 50, 500], (10 * weight for weight in WEIGHTS), strict=True)
    )


def test_wait_is_bounded_by_the_sum_of_weights() -> None:
    bands: Bands[str] = Bands()
    bands.add("low", -1000, NOW)
    for turn in range(sum(WEIGHTS)):
        for priority in (0, 50, 1000):
            bands.add("high", priority, NOW)
        if bands.take(NOW) == "low":
            return
        assert turn < sum(WEIGHTS) - 1


def test_long_wait_raises_the_band() -> None:
    def turns_until_low(waited_ms: float) -> int:
        bands: Bands[str] = Bands()
        bands.add("low", -1, NOW - waited_ms)
        for turn in range(100):
            bands.add("high", 1000, NOW)
            if bands.take(NOW) == "low":
                return turn
        raise AssertionError("it starves")

    waits = [turns_until_low(steps * AGEING_MS) for steps in range(4)]
    assert waits == sorted(waits, reverse=True)
    assert waits[3] < waits[0]


def test_idle_band_accumulates_no_credit() -> None:
    bands: Bands[str] = Bands()
    for _ in range(50):
        bands.add("low", -1, NOW)
        bands.take(NOW)
    for _ in range(40):
        bands.add("high", 1000, NOW)
        bands.add("low", -1, NOW)
    first = [bands.take(NOW) for _ in range(18)]
    assert first.count("high") == 16
