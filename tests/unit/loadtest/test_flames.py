"""Flame graphs and tables of py-spy's stacks."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from loadtest.flames import Frame, layout, loop_stacks, own_shares, svg, table, whole_shares, whose

_WAY = "thread (7): MainThread;main (broker/__main__.py:38);Runner.run (asyncio/runners.py:86)"
RAW = f"""{_WAY};take (broker/hot.py:9);encode (storage/log/encode.py:3) 6
{_WAY};take (broker/hot.py:12) 2
{_WAY};take (broker/hot.py:9);encode (storage/log/encode.py:7) 1
{_WAY} 1
thread (7): MainThread;main (broker/__main__.py:38) 50
thread (8): wal-0;write (storage/platform/posix.py:5) 100
thread (9): other-loop;Runner.run (asyncio/runners.py:86);take (broker/hot.py:9) 30
"""
TAKE, ENCODE = "take (broker/hot.py)", "encode (storage/log/encode.py)"


def test_only_stacks_of_the_event_loop_are_counted() -> None:
    assert loop_stacks(RAW) == Counter({(TAKE, ENCODE): 7, (TAKE,): 2, (): 1})


def test_stacks_without_a_loop_are_refused() -> None:
    with pytest.raises(ValueError, match="--threads"):
        loop_stacks("main (broker/__main__.py:38) 5\n")


def test_a_frame_is_as_wide_as_its_samples_and_stands_on_its_caller() -> None:
    frames = layout(Counter({("a", "x"): 3, ("a", "y"): 2, ("b",): 4, (): 1}))
    assert frames == [
        Frame("event loop", 0, 0, 10),
        Frame("a", 1, 0, 5),
        Frame("x", 2, 0, 3),
        Frame("y", 2, 3, 2),
        Frame("b", 1, 5, 4),
    ]


def test_own_time_excludes_called_functions() -> None:
    assert own_shares(loop_stacks(RAW)) == pytest.approx({ENCODE: 0.7, TAKE: 0.2, "event loop": 0.1})


def test_the_picture_names_and_escapes_the_frames() -> None:
    picture = svg(Counter({("<lambda> (storage/a.py)",): 9, ("narrow (storage/b.py)",): 1, (): 9990}), "one & two")
    assert "one &amp; two" in picture
    assert "10,000 samples" in picture
    assert "narrow" not in picture, "it is not a pixel and a half wide"
    wide = svg(Counter({("<lambda> (storage/a.py)",): 9, (): 1}), "t")
    assert "<title>&lt;lambda&gt; (storage/a.py): 90.0 %</title>" in wide
    assert re.search(r'<rect class="s" x="0.0" y="\d+" width="1080.0"', wide)


def test_the_colour_shows_the_package_of_a_frame() -> None:
    assert [whose(name) for name in (TAKE, ENCODE, "run (uvloop/loop.py)", "event loop")] == [
        "broker",
        "storage",
        "elsewhere",
        "elsewhere",
    ]


def test_a_function_is_counted_once_a_stack() -> None:
    assert whole_shares(Counter({("a", "b", "a"): 1, ("b",): 3})) == {"a": 0.25, "b": 1.0}


def test_the_table_begins_with_the_most_expensive_frames() -> None:
    before, after = Counter({("a",): 1, ("b",): 1}), Counter({("b",): 1, ("b", "c"): 3})
    assert table([before, after], [10.0, 4.0], 2, ["b"]).splitlines()[2:] == [
        "| `a` | 50.0 %, 5.00 µs |  |",
        "| `b` | 50.0 %, 5.00 µs | 25.0 %, 1.00 µs |",
        "| `b`, with its callees | 50.0 %, 5.00 µs | 100.0 %, 4.00 µs |",
    ]
