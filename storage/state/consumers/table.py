"""All consumers of a log, and one `apply` of their frames for live path and recovery. Pure.

Source: docs/reference/format.md#frames, docs/reference/guarantees.md#consumers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import islice

from storage.format import control
from storage.state.consumers.consumer import Consumer
from storage.state.consumers.values import ConsumerConfig


class ConsumerTable:
    """Consumers of one log by name. `len` counts them."""

    __slots__ = ("_known", "_lowest", "_names", "by_name")

    def __init__(self) -> None:
        self.by_name: dict[str, Consumer] = {}
        self._names: list[str] = []  # sorted
        self._lowest: int | None = None
        self._known = True

    def __len__(self) -> int:
        return len(self.by_name)

    def named(self, prefix: str = "", after: str = "") -> Iterator[Consumer]:
        """Consumers whose name begins with `prefix`, in bytewise order, after the name `after`."""
        first = bisect_left(self._names, prefix) if prefix > after else bisect_right(self._names, after)
        for name in islice(self._names, first, None):
            if not name.startswith(prefix):
                return
            yield self.by_name[name]

    def lowest_durable(self) -> int | None:
        """The seq that every consumer has durably consumed; None when there is no consumer.

        Computed again only when the slowest consumer has moved.
        """
        if not self._known:
            self._lowest = min((each.durable_seq for each in self.by_name.values()), default=None)
            self._known = True
        return self._lowest

    def apply(self, value: control.Consumer) -> int:
        """Apply a committed frame; returns the change in the number of consumers. Frames about a deleted consumer do
        nothing."""
        known = self.by_name.get(value.name)
        if known is None or known.consumer_id != value.consumer_id:
            if value.event != "put" or value.seq is None:
                return 0
            if known is not None and known.consumer_id > value.consumer_id:
                return 0  # only when salvage has lost the frames in between
            before = self._drop(known) if known is not None else 0
            config = ConsumerConfig.from_map(value.config or {})
            return before + self.add(Consumer(value.consumer_id, value.name, config, value.seq))
        if value.event == "delete":
            return self._drop(known)
        if value.config is not None:
            known.config = ConsumerConfig.from_map(value.config)
        if value.event == "cursor" and value.seq is not None:
            self.set_durable(known, value.seq)
        return 0

    def add(self, consumer: Consumer) -> int:
        """Add a new consumer."""
        self.by_name[consumer.name] = consumer
        insort(self._names, consumer.name)
        self._known = False
        return 1

    def _drop(self, consumer: Consumer) -> int:
        del self.by_name[consumer.name]
        del self._names[bisect_left(self._names, consumer.name)]
        self._known = False
        return -1

    def set_durable(self, consumer: Consumer, seq: int) -> None:
        """The log says that the consumer is at `seq`."""
        if self._lowest is None or seq < self._lowest or consumer.durable_seq == self._lowest:
            self._known = False
        consumer.durable_seq = seq
