"""How JSON lines become batches: which lines belong together, and what is wrong with the first invalid one.

Only the input and the sizes decide where a batch begins and ends, so the same input gives the same batches again. Only
a source that pauses (`None` between lines) can close one early.
"""

from __future__ import annotations

import io
import os
import select
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from topics_client.encoding import why_not_json

#: A batch is closed before it grows beyond this, whatever its number of records. The broker accepts 64 MiB.
MAX_BATCH_BYTES = 8 << 20
#: The longest line. The broker refuses longer records anyway.
MAX_LINE_BYTES = 64 << 20

_READ_BYTES = 1 << 18
_SPACE = b" \t\r\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class BadLine(Exception):
    """A line that is not one JSON value. `number` counts from 1, empty lines included."""

    def __init__(self, number: int, reason: str) -> None:
        self.number = number
        super().__init__(f"Line {number} is not valid JSON: {reason}.")


@dataclass(slots=True)
class Batch:
    """Records that are appended together. `numbers`: their line numbers. `input_bytes`: the bytes of the input that
    they used."""

    records: list[bytes] = field(default_factory=list[bytes])
    numbers: list[int] = field(default_factory=list[int])
    record_bytes: int = 0
    input_bytes: int = 0

    def add(self, number: int, record: bytes) -> None:
        """Add the record of that line."""
        self.records.append(record)
        self.numbers.append(number)
        self.record_bytes += len(record)


def batches(lines: Iterable[bytes | None], max_records: int, max_bytes: int = MAX_BATCH_BYTES) -> Iterator[Batch]:
    """Groups lines; empty ones are left out. Raises BadLine, and then the batch with that line is not returned."""
    batch = Batch()
    number = 0
    for line in lines:
        if line is None:
            if batch.records:
                yield batch
                batch = Batch()
            continue
        number += 1
        text = (line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line).strip(_SPACE)
        if text:
            reason = why_not_json(text)
            if reason is not None:
                raise BadLine(number, reason)
            if batch.records and batch.record_bytes + len(text) > max_bytes:
                yield batch
                batch = Batch()
            batch.add(number, text)
        batch.input_bytes += len(line)
        if len(batch.records) >= max_records:
            yield batch
            batch = Batch()
    if batch.records:
        yield batch


def read_lines(source: BinaryIO, *, linger_s: float | None) -> Iterator[bytes | None]:
    """The lines of a file or pipe. With `linger_s`, yields None when nothing has come for that long."""
    try:
        descriptor = source.fileno()
    except (io.UnsupportedOperation, ValueError):
        yield from source
        return
    rest = bytearray()
    number = 0
    while True:
        if linger_s is not None and not select.select([descriptor], [], [], linger_s)[0]:
            yield None
            select.select([descriptor], [], [])
        chunk = os.read(descriptor, _READ_BYTES)
        if not chunk:
            break
        rest += chunk
        if b"\n" not in chunk:
            if len(rest) > MAX_LINE_BYTES:
                raise BadLine(number + 1, f"it is longer than {MAX_LINE_BYTES >> 20} MiB")
            continue
        *whole, last = bytes(rest).split(b"\n")
        rest = bytearray(last)
        for line in whole:
            number += 1
            yield line + b"\n"
    if rest:
        yield bytes(rest)
