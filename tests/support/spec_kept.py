"""The result of State frames, and of Batch frames with a producer. From the specification and docs/reference/format.md
alone.

Readings, where the specification leaves a choice (docs/reference/format.md decides):

- The last State of a kind and key counts; without a value it is gone.
- Metadata of an offset goes with the next cursor of its consumer, or with its end, unless a State behind it says more.
- A producer has the epoch of its last batch, and the last 5 batches of it of which each goes on from the one before.
- A snapshot may leave out producers that were idle for long, and none of those it names may differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from tests.support.spec_control import ControlViolation, is_map, is_seq, is_u64

_SEQUENCES = 1 << 31
_OFFSET = "offset"
_PRODUCER = {"producer_id", "epoch", "ts", "batches"}


@dataclass(slots=True)
class Kept:
    """Values by kind and key. For each producer its epoch and batches, each [first sequence, last one, first seq].

    `partial`: frames about them are no longer in the log.
    """

    values: dict[tuple[str, str], bytes] = field(default_factory=dict[tuple[str, str], bytes])
    producers: dict[int, tuple[int, list[list[int]]]] = field(default_factory=dict[int, tuple[int, list[list[int]]]])
    partial: bool = False

    def state(self, fields: dict[str, Any]) -> None:
        """A State frame."""
        name = (fields["kind"], fields["key"])
        if "value" in fields:
            self.values[name] = fields["value"]
        else:
            self.values.pop(name, None)

    def consumer(self, fields: dict[str, Any]) -> None:
        """A Consumer frame."""
        if fields["event"] == "delete" or fields.get("seq") is not None:
            self.values.pop((_OFFSET, fields["name"]), None)

    def batch(self, producer: list[int], first_seq: int, count: int) -> None:
        """A Batch with this many records of a producer."""
        producer_id, epoch, base = producer
        known, batches = self.producers.get(producer_id, (epoch, []))
        if known > epoch and not self.partial:
            raise ControlViolation(f"producer {producer_id} goes back from epoch {known} to {epoch}")
        if known != epoch or not batches or base != (batches[-1][1] + 1) % _SEQUENCES:
            batches = []
        self.producers[producer_id] = (epoch, [*batches, [base, (base + count - 1) % _SEQUENCES, first_seq]][-5:])

    def meet(self, values: Any, producers: Any) -> None:
        """The replay has come to a section's `as_of`: take over what the log could not know, and compare the rest."""
        said = {(kind, key): value for kind, key, value in values}
        if [*said] != sorted(said) or len(said) < len(values):
            raise ControlViolation(f"values are not in order: {[*said]}")
        known = {one["producer_id"]: (one["epoch"], one["batches"]) for one in producers}
        if len(known) < len(producers):
            raise ControlViolation("a producer twice")
        if self.partial:
            self.values, self.producers, self.partial = said, known, False
            return
        if self.values != said:
            raise ControlViolation(f"values are {said}, the frames come to {self.values}")
        for producer_id, found in known.items():
            if self.producers.get(producer_id) != found:
                raise ControlViolation(
                    f"producer {producer_id} is {found}, the frames say {self.producers.get(producer_id)}"
                )
        self.producers = known  # those that are missing are forgotten, or are not needed


def are_values(value: Any) -> bool:
    """Whether this equals what a section says of State frames."""
    return isinstance(value, list) and all(map(_is_value, cast("list[Any]", value)))


def _is_value(value: Any) -> bool:
    return isinstance(value, list) and [*map(type, cast("list[Any]", value))] == [str, str, bytes]


def are_some_values(value: Any) -> bool:
    return are_values(value) and value != []


def are_producers(value: Any) -> bool:
    """Whether this equals what a section says of producers."""
    return isinstance(value, list) and bool(cast("list[Any]", value)) and all(map(_is_known, cast("list[Any]", value)))


def _is_known(value: Any) -> bool:
    return (
        is_map(value)
        and value.keys() == _PRODUCER
        and is_u64(value["ts"])
        and isinstance(value["batches"], list)
        and 1 <= len(value["batches"]) <= 5
        and is_u64(value["producer_id"])
        and is_u64(value["epoch"])
        and all(len(one) == 3 and is_u64(one[0]) for one in value["batches"])
        and all(is_u64(one[1]) and is_seq(one[2]) for one in value["batches"])
    )
