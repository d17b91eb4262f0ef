"""How records and gaps are printed, for people and for programs."""

from __future__ import annotations

import sys

import msgspec

from topics_client.calls import Match
from topics_client.commands.terminal import amount, colours, emit, moment, printable
from topics_client.values import Record, Tombstone, one_line

_DIM, _CYAN, _YELLOW, _RESET = "\x1b[2m", "\x1b[36m", "\x1b[33m", "\x1b[0m"


class RecordPrinter:
    """Prints one record a line. As JSON: as the broker writes it, data and meta byte for byte.

    A gap is a line of its own: in JSON {"tombstone": {...}}, which differs from every record.
    """

    def __init__(self, *, as_json: bool, flush: bool = False) -> None:
        self._as_json = as_json
        self._flush = flush
        self._colours = colours()

    def write(self, item: Record | Tombstone) -> None:
        """Print one record or gap."""
        if self._as_json:
            emit(item.to_json() if isinstance(item, Record) else msgspec.json.encode({"tombstone": item}))
        else:
            line = self._record(item) if isinstance(item, Record) else self._gap(item)
            sys.stdout.write(line + "\n")
        if self._flush:
            sys.stdout.flush()

    def _record(self, record: Record) -> str:
        labels = "".join(
            f"  {sign}{printable(text)}" for sign, text in (("#", record.tag), ("@", record.node)) if text is not None
        )
        data = printable(one_line(record.data_raw).decode("utf-8", "replace"))
        meta = printable(one_line(record.meta_raw).decode("utf-8", "replace")) if record.meta_raw is not None else ""
        where = self._paint(f"{record.seq:>7}  {moment(record.ts)}", _DIM)
        return where + self._paint(labels, _CYAN) + f"  {data}" + (self._paint(f"  meta {meta}", _DIM) if meta else "")

    def _gap(self, gap: Tombstone) -> str:
        return self._paint(f"------- {gap_sentence(gap)}", _YELLOW)

    def _paint(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_RESET}" if self._colours and text else text


def gap_sentence(gap: Tombstone) -> str:
    """A gap in words."""
    if gap.reason == "recreated":
        return "the topic was deleted and created again; its new records follow from seq 1"
    lost = amount(gap.missed_estimate, "record")
    return f"seqs {gap.gap_from} to {gap.gap_to} are gone ({printable(gap.reason)}), at most {lost}"


def tag_predicate(tag: str | None) -> Match | None:
    """`x` matches that tag, `x*` every tag that begins with x."""
    return ["tag", "Glob", tag] if tag is not None and tag.endswith("*") else tag
