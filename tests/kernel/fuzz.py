"""Mutated inputs for the compiled kernel, built with sanitizers. Its results are compared with those of the Python
kernel.

    python -m tests.kernel.fuzz LIBRARY SECONDS [--seed N] [--keep FILE]

Replays the inputs of tests/kernel/corpus, and then changes them for the given time. The library counts which code runs
(`coverage.c`). An input that reaches new code is changed in turn. An input is the argument of a target; its file is
named after the target, and all other choices follow from its bytes. Half the time frames get correct lengths and
checksums again, so that code after the checksum is reached too. Prints the number of inputs tried. A different result,
or a finding of a sanitizer, ends the run; the input is then in the file `fuzz-failure.bin` of the current folder.

`--keep` writes the smallest inputs that together reach everything that was reached. With `--keep
tests/kernel/found.bin` every run begins with an hour's findings.

Started by `test_fuzz.py`, which preloads the sanitizer. Buffers are arrays: their memory ends exactly at their end.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import struct
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias
from zlib import crc32

import msgspec

import kernel
from kernel import Columns, Header, Kind, plain
from kernel.rows import ROW_SIZE
from tests.kernel.build import load
from tests.kernel.conftest import serve

CORPUS: Final = Path(__file__).parent / "corpus"
FOUND: Final = Path(__file__).parent / "found.bin"
#: Larger inputs are not kept.
KEPT_BYTES: Final = 512
MAX_BYTES: Final = 1 << 12
_INTERESTING: Final = (0, 1, 0x7F, 0x80, 0xFF, 0xD5, 0xD9, 0xC6, 0x22, 0x5C, 0x7B, 0x7D, 0x5B, 0x5D, 0x2C)
_WORDS: Final = (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff", b'"data":', b',"h":', b',"deliver_at":', b',"ct":')
_WORDS_OF_JSON: Final = (
    b'{"a":',
    b"\\u",
    b"\\ud83d\\ude00",
    b"-1e",
    b"0.5",
    b"null",
    b"[true,",
    b'"}',
    b"9" * 20,
    b'"2024-01-01T10:00:00.5+01:00"',
)
Buffer = Any
#: A target, and the bytes that it takes.
Input: TypeAlias = tuple[str, bytes]


def _frames(kind: Kind) -> Callable[[Buffer, random.Random], Any]:
    def target(buffer: Buffer, choice: random.Random) -> Any:
        size = len(buffer)
        start = choice.choice((0, 0, choice.randrange(size + 1)))
        stop = choice.choice((size, size, choice.randrange(start, size + 1)))
        options: dict[str, Any] = {
            "max_frames": choice.choice((0, 0, 1, 3)),
            "max_bytes": choice.choice((0, 0, 10, 100)),
            "verify": choice.random() < 0.5,
            "first_seq": choice.choice((None, 100)),
        }
        found = kernel.scan(buffer, kind, start, stop, **options)
        columns = found.columns
        results: list[Any] = [found, kernel.groups(buffer, columns, choice.random() < 0.2)]
        results += [kernel.by_topic(buffer, columns, array("I", range(len(columns))), size)]
        results += [attempt(kernel.measure, buffer, columns)]
        results += [attempt(kernel.cut, buffer, columns, part) for part in range(4)]
        results += [attempt(kernel.render_rows, buffer, columns, shape) for shape in (6, 7, 15, 2)]
        results += [attempt(kernel.render_job_rows, buffer, columns, range(len(columns)), 1, 2)]
        results += [attempt(kernel.encode_copies, buffer, columns, Header(1, 2, 3, b"", 32))]
        dead = bytes(choice.random() < 0.3 for _ in range(len(columns)))
        results += [attempt(_to_segment, buffer, columns, choice.choice((None, dead)))]
        return results

    return target


def _to_segment(buffer: Buffer, columns: Columns, dead: bytes | None) -> Any:
    seqs = columns.seqs
    return kernel.to_segment(buffer, columns, next_seq=max(0, seqs[0] - 2) if seqs else 0, dead=dead)


def _rows(buffer: Buffer, choice: random.Random) -> Any:
    """Rows that no scan has made, over a buffer of a few bytes."""
    columns = Columns(bytes(buffer)[: len(buffer) // ROW_SIZE * ROW_SIZE])
    results = [attempt(call, buffer, columns) for call in (kernel.measure, kernel.groups, kernel.render_rows, _copies)]
    results += [attempt(kernel.by_topic, buffer, columns, array("I", range(len(columns))), 7)]
    return [*results, attempt(kernel.cut, buffer, columns, 2), attempt(_to_segment, buffer, columns, None)]


def _copies(buffer: Buffer, columns: Columns) -> Any:
    return kernel.encode_copies(buffer, columns, Header(1, 2, 3, b"", 0))


def _body(buffer: Buffer, choice: random.Random) -> Any:
    body = bytes(buffer)
    results = [attempt(kernel.render_records, [(1, 2, body[:5], b"", body)], shape) for shape in (6, 2, 15)]
    log, _ = kernel.encode_appends([buffer], None, None, Header(1, 2, 3, b"", 0), body=2)
    return [*results, attempt(kernel.measure, array("B", log), kernel.scan(log).columns)]


def _index(buffer: Buffer, choice: random.Random) -> Any:
    return kernel.parse_index(buffer)


def _json(buffer: Buffer, choice: random.Random) -> Any:
    return kernel.check_json(buffer, choice.choice((0, 3, 256)))


def _columns(buffer: Buffer, choice: random.Random) -> Any:
    """Two rows of JSON text, and their members as columns of every kind; then the same bytes under other kinds."""
    size = len(buffer)
    middle = choice.choice((0, size, choice.randrange(size + 1)))
    starts, ends = array("Q", (0, middle)).tobytes(), array("Q", (middle, size)).tobytes()
    found = kernel.json_members(buffer, starts, ends, (b"a", b"data", b"h"))
    columns = [*found.members, kernel.JsonColumn(starts, ends, choice.choices(range(12), k=2))]
    skipped = kernel.json_members(buffer, starts, ends, (b"a", b"data", b"h"), sure=True)
    assert 0 in found.kinds or skipped == found, "members that are not checked differ"
    results: list[Any] = [found.kinds, kernel.json_elements(buffer, starts, ends)]
    for column in columns:
        column = kernel.JsonColumn(*map(bytes, column))
        results += [column, kernel.json_texts(buffer, column), kernel.json_moments(buffer, column)]
        results += [kernel.json_elements(buffer, *column[:2])]
        results += [kernel.json_integers(buffer, column, bits) for bits in (7, 63)]
        results += [kernel.json_decimals(buffer, column, *kind) for kind in ((38, 10), (1, 0))]
    odd = array("Q", (choice.randrange(size + 2), choice.choice((0, size, 1 << 63)))).tobytes()
    return [*results, attempt(kernel.json_members, buffer, odd, odd[::-1], (b"a",))]


def _kafka(buffer: Buffer, choice: random.Random) -> Any:
    body = bytes(buffer)
    values = attempt(kernel.kafka_values, [body, b"{" + body[1:]], [b"", body[:1]], [1, 2])
    return values, attempt(kernel.read_kafka, buffer, choice.choice((1, 2, 3)), max_headers=choice.choice((2, 1 << 20)))


def _checksum(buffer: Buffer, choice: random.Random) -> Any:
    return kernel.checksum(buffer), kernel.crc32c(buffer)


TARGETS: Final[dict[str, Callable[[Buffer, random.Random], Any]]] = {
    "log": _frames(Kind.LOG),
    "segment": _frames(Kind.SEGMENT),
    "rows": _rows,
    "body": _body,
    "index": _index,
    "json": _json,
    "columns": _columns,
    "kafka": _kafka,
    "checksum": _checksum,
}


def attempt(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The result, or that the call is refused. The messages of refusals may differ."""
    try:
        return call(*arguments, **options)
    except (ValueError, OverflowError):
        return "refused"


def mutated(content: bytes, others: list[bytes], choice: random.Random) -> bytes:
    """Another input, of at most MAX_BYTES."""
    changed = bytearray(content)
    for _ in range(choice.choice((1, 1, 2, 4))):
        at = choice.randrange(len(changed) + 1)
        way = choice.randrange(7)
        if way == 0 and changed:
            changed[at % len(changed)] ^= 1 << choice.randrange(8)
        elif way == 1 and changed:
            changed[at % len(changed)] = choice.choice(_INTERESTING)
        elif way == 2:
            del changed[at : at + choice.choice((1, 2, 8, 64))]
        elif way == 3:
            changed[at:at] = choice.randbytes(choice.choice((1, 2, 8, 40)))
        elif way == 4:
            word = choice.choice((*_WORDS, *_WORDS_OF_JSON))
            changed[at : at + len(word)] = word
        elif way == 5:
            other = choice.choice(others)
            start = choice.randrange(len(other) + 1)
            changed[at:] = other[start:]
        else:
            del changed[at:]
    return bytes(changed[:MAX_BYTES])


def repaired(content: bytes, kind: Kind) -> bytes:
    """The frames with correct lengths and checksums, as far as the lengths in their headers lead."""
    changed, at, header = bytearray(content), 0, 37 if kind else 38
    while len(changed) - at >= 46:
        node_len, tag_len, data_len = struct.unpack_from("<HHI", changed, at + header - 8)
        size = 46 + node_len + tag_len + data_len
        if size > len(changed) - at:
            node_len = tag_len = 0
            data_len = len(changed) - at - 46
            struct.pack_into("<HHI", changed, at + header - 8, node_len, tag_len, data_len)
            size = len(changed) - at
        struct.pack_into("<I", changed, at, size - 4)
        end = at + size - (9 if kind else 8)
        covered = (b"\1" if kind else b"") + bytes(changed[at + 4 : end])
        struct.pack_into("<Q", changed, end, plain.checksum(covered))
        at += size
    return bytes(changed)


def inputs() -> list[Input]:
    """Inputs written by hand."""
    return [(path.name.partition("-")[0], path.read_bytes()) for path in sorted(CORPUS.glob("*.bin"))]


def run_one(target: str, content: bytes, codes: Sequence[Any]) -> None:
    """Compare both kernels on one input. Raises AssertionError if they differ."""
    results: list[Any] = []
    for code in codes:
        serve(code)
        results.append(TARGETS[target](array("B", content), random.Random(crc32(content))))
    assert results[:-1] == results[1:], f"{target}: the twins differ: {results}"


class Fuzzer:
    """Tries inputs, and keeps those that reach new code."""

    def __init__(self, library: Path, choice: random.Random) -> None:
        self._compiled = load(library)
        self._gained = ctypes.CDLL(str(library)).coverage_gained
        self._choice = choice
        self._kept: dict[str, list[bytes]] = {target: [] for target in TARGETS}
        self._failure = Path("fuzz-failure.bin")
        self.tried = 0

    def kept(self) -> list[Input]:
        """Smallest first."""
        every = [(target, content) for target, contents in self._kept.items() for content in contents]
        return sorted(every, key=lambda each: len(each[1]))

    def add(self, target: str, content: bytes) -> bool:
        """Try an input. Returns whether it reached new code. Raises AssertionError if the kernels differ."""
        self._failure.write_bytes(content) if self.tried % 64 == 0 else None
        self.tried += 1
        try:
            run_one(target, content, (self._compiled,))
            new = bool(self._gained())
            if new or self.tried % 8 == 0:  # the Python kernel is far slower
                run_one(target, content, (self._compiled, plain))
        except BaseException:
            self._failure.write_bytes(content)
            raise
        if new:
            self._kept[target].append(content)
        return new

    def change_one(self) -> None:
        """Try a changed input. Half the time it is one of those found last."""
        choice = self._choice
        target = choice.choice([*TARGETS])
        kept = self._kept[target]
        content = mutated(choice.choice(kept[-20:] if choice.random() < 0.5 else kept), kept, choice)
        if target in ("log", "segment") and choice.random() < 0.5:
            content = repaired(content, Kind.SEGMENT if target == "segment" else Kind.LOG)
        self.add(target, content)

    def close(self) -> None:
        """Print that nothing was wrong."""
        self._failure.unlink(missing_ok=True)


def found() -> list[Input]:
    """The inputs that earlier runs have found."""
    return msgspec.msgpack.decode(FOUND.read_bytes(), type=list[Input])


def reduced(library: Path, inputs_found: list[Input]) -> list[Input]:
    """Inputs that reach new code, the smallest first, after those written by hand. Runs in a process of its own."""
    fuzzer = Fuzzer(library, random.Random(0))
    for target, content in inputs():
        fuzzer.add(target, content)
    kept = [each for each in inputs_found if len(each[1]) <= KEPT_BYTES and fuzzer.add(*each)]
    fuzzer.close()
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kernel.fuzz")
    parser.add_argument("library", type=Path)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--reduce", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.reduce:
        kept = msgspec.msgpack.decode(given.reduce.read_bytes(), type=list[Input])
        given.reduce.write_bytes(msgspec.msgpack.encode(reduced(given.library, kept)))
        return
    fuzzer = Fuzzer(given.library, random.Random(given.seed))
    for target, content in [*inputs(), *found()]:
        fuzzer.add(target, content)
    end = time.monotonic() + given.seconds
    while time.monotonic() < end:
        fuzzer.change_one()
    fuzzer.close()
    if given.keep:
        given.keep.write_bytes(msgspec.msgpack.encode(fuzzer.kept()))
        command = [sys.executable, "-m", "tests.kernel.fuzz", str(given.library), "0", "--reduce", str(given.keep)]
        subprocess.run(command, check=True)
    print(fuzzer.tried)


if __name__ == "__main__":
    main()
