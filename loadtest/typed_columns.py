"""Measures what typed columns cost: processor time to read verified records into Arrow columns, one of ten fields
against all ten.

    python -m loadtest.typed_columns

Frames of a segment are made in memory, so neither a broker nor a disk takes part. Each round reads the same frames in
every way, in turn: decode and verify, then make the columns. The least time of a way in all rounds is compared, because
other programs only add to it. A machine that is busy changes all ways alike; the ratios are the result.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

import kernel
from pipeline import frames
from pipeline.batches import Shape, from_frames
from pipeline.values import ValueShape, value_shape

_TOPIC = 7
_DDL = (
    "id bigint, name string, price decimal(12,2), ok boolean, at timestamp, day date, city string, amount double, "
    "tags array<string>, address struct<street:string,zip:string>"
)


def value(number: int) -> bytes:
    """The value of one record: ten members of all kinds."""
    return json.dumps(
        {
            "id": number,
            "name": f"item number {number}",
            "price": number % 10_000 / 100,
            "ok": number % 3 == 0,
            "at": f"2026-01-31T10:{number % 60:02}:00.5Z",
            "day": f"2026-01-{number % 28 + 1:02}",
            "city": "Zürich",
            "amount": number / 7,
            "tags": ["a", "b"],
            "address": {"street": "Long Street 5", "zip": f"{number % 10_000:05}"},
        },
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode()


def segment(records: int) -> bytes:
    """The frames of these records, as in a segment's .data."""
    header = kernel.Header(_TOPIC, 1, 1_700_000_000_000, b"", 0)
    log, _ = kernel.encode_appends([value(number) for number in range(records)], None, None, header)
    return kernel.to_segment(log, kernel.scan(log).columns, next_seq=1)[0]


def ways() -> dict[str, Shape]:
    """The columns that are made, by the name of the way."""
    every: ValueShape = value_shape(_DDL, [])
    names = [each.name for each in every.columns]
    found = {
        "no typed columns, all others": Shape(),
        "all ten, and all others": Shape(values=every),
        "all ten fields": _only(every, names),
    }
    return found | {f"only {name}": _only(every, [name]) for name in names}


def _only(every: ValueShape, names: list[str]) -> Shape:
    return Shape(values=every.only(names), columns=tuple(names))


def measured(data: bytes, shapes: dict[str, Shape], rounds: int) -> dict[str, float]:
    """The least seconds of processor time of each way."""
    least: dict[str, float] = {}
    for _ in range(rounds):
        for name, shape in shapes.items():
            least[name] = min(least.get(name, float("inf")), _seconds(lambda shape=shape: _read(data, shape)))
    return least


def _read(data: bytes, shape: Shape) -> None:
    found, _, _ = frames.decode(data, _TOPIC, 0, 1 << 62)
    from_frames(found, "t", 0, shape)


def _seconds(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.typed_columns",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--records", type=int, default=20_000, help="records of the segment")
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args(arguments)
    data = segment(given.records)
    least = measured(data, ways(), given.rounds)
    ten = least["all ten fields"]
    code = "C" if kernel.COMPILED else "Python"
    print(f"{given.records:,} records of {len(data) // given.records} bytes; kernel in {code}")
    for name, seconds in least.items():
        ratio = f"   all ten / this {ten / seconds:5.2f}" if name.startswith("only") else ""
        print(f"{name:30} {seconds / given.records * 1e9:8,.0f} ns a record{ratio}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
