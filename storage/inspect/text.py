"""Formats values for `dump`: flags, times, control fields, arbitrary bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from storage.format import HOP_SHIFT, FrameFlag, control

LEGEND = (
    "flags: t tag, n node, d durable (fsync class), m more frames of this batch follow, b binary, 1-7 hops of a copy"
)
_LETTERS = {
    FrameFlag.HAS_TAG: "t",
    FrameFlag.HAS_NODE: "n",
    FrameFlag.DURABLE: "d",
    FrameFlag.MORE: "m",
    FrameFlag.BINARY: "b",
}
_LAST_DAY = 2_932_897  # 10000-01-01, in days since 1970-01-01


def flag_letters(flags: int) -> str:
    """'dm' for durable and more; '-' for none."""
    letters = "".join(letter for flag, letter in _LETTERS.items() if flags & flag)
    hops = flags >> HOP_SHIFT
    return f"{letters}{hops or ''}" or "-"


def printable(text: str) -> str:
    """The same text, with characters escaped that could upset a terminal."""
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)


def plain(value: Any) -> Any:
    """The value for JSON, with bytes as hex."""
    return value.hex() if isinstance(value, bytes) else str(value)


def compact(value: Any) -> str:
    return printable(json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=plain))


def control_text(value: control.Control | None, called: Callable[[int], str]) -> str | None:
    """A sentence for the control frames that are about segments; None for all others. `called` names a topic_id."""
    if isinstance(value, control.CheckpointMark):
        return "in segments: " + ", ".join(f"{called(id)} up to {seq}" for id, seq in value.absorbed.items())
    if not isinstance(value, control.Segment):
        return None
    text = f"segment {value.event}: gen {value.gen} "
    if value.end_seq > value.first_seq:
        text += f"of seqs {value.first_seq} to {value.end_seq - 1}"
    else:
        text += f"from seq {value.first_seq} on, empty"
    live = "" if value.live_bytes is None else f" ({value.live_bytes} bytes)"
    return f"{text}, {value.live} live{live}, .data {value.data_bytes} bytes, {value.tier}"


def decoded(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def text_of(data: bytes) -> str:
    return printable(decoded(data))


def utc_text(ts_ms: int) -> str:
    """2025-08-12T12:00:00.000Z, or the bare number when it is no date of this era.

    Computed here, because only storage/platform/clock.py may use the modules that could also read the time.
    """
    days, in_day_ms = divmod(ts_ms, 86_400_000)
    if days >= _LAST_DAY:
        return str(ts_ms)
    # Years that begin in March put the leap day last, so that months have fixed places (days from civil, reversed).
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    march_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * march_month + 2) // 5 + 1
    month = march_month + 3 if march_month < 10 else march_month - 9
    year = era * 400 + year_of_era + (month <= 2)
    hours, rest_ms = divmod(in_day_ms, 3_600_000)
    minutes, rest_ms = divmod(rest_ms, 60_000)
    seconds, millis = divmod(rest_ms, 1000)
    return f"{year:04d}-{month:02d}-{day:02d}T{hours:02d}:{minutes:02d}:{seconds:02d}.{millis:03d}Z"
