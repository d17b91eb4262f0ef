"""What Consumer frames say of the named readers of a log, decoded from the specification alone.

Readings, where the specification leaves a choice (docs/reference/format.md decides):

- A put with a seq makes a consumer, one without gives one that is there another config; only a put has a config.
- The last cursor counts, and it may go back: somebody has put it there.
- No cursor is beyond the head, and a log that is ephemeral has no consumers.
- A cursor of a consumer that was deleted means nothing. A consumer_id is never used again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.spec_control import ControlViolation, is_consumer_name, is_map, is_seq, is_u64

_FIELDS = {"consumer_id", "name", "config", "cursor"}
_CONFIG = {"consistency", "persist_every"}


@dataclass(slots=True, kw_only=True)
class SpecConsumer:
    """A consumer as its frames describe it."""

    name: str
    config: dict[str, Any]
    cursor: int


@dataclass(slots=True)
class Readers:
    """The consumers of one log by id. `partial`: frames about them are no longer in the log."""

    consumers: dict[int, SpecConsumer] = field(default_factory=dict[int, SpecConsumer])
    deleted: set[int] = field(default_factory=set[int])
    partial: bool = False

    def take(self, fields: dict[str, Any], head: int | None, durability: str) -> None:
        """A frame of the log, whose head may be known. Raises Wrong."""
        if durability == "ephemeral":
            raise ControlViolation("a consumer of what is in memory only")
        consumer_id, event, seq = fields["consumer_id"], fields["event"], fields.get("seq")
        known = self.consumers.get(consumer_id)
        if known is not None and known.name != fields["name"]:
            raise ControlViolation(f"consumer {consumer_id} changes its name")
        if seq is not None and head is not None and seq > head:
            raise ControlViolation(f"consumer {consumer_id} stands at {seq}, beyond the head {head}")
        if event == "put":
            self._put(consumer_id, fields)
        elif fields.get("config") is not None or (seq is None) != (event == "delete"):
            raise ControlViolation(f"a Consumer that says {event} has {sorted(fields)}")
        elif known is None:
            if consumer_id not in self.deleted and not self.partial:
                raise ControlViolation(f"a {event} of consumer {consumer_id}, which was never made")
            if event == "delete":
                self.deleted.add(consumer_id)
        elif event == "delete":
            del self.consumers[consumer_id]
            self.deleted.add(consumer_id)
        else:
            known.cursor = seq or 0

    def _put(self, consumer_id: int, fields: dict[str, Any]) -> None:
        config, seq, known = fields.get("config"), fields.get("seq"), self.consumers.get(consumer_id)
        _judge_config(config)
        if consumer_id in self.deleted:
            raise ControlViolation(f"consumer {consumer_id} is made again")
        if known is not None:
            if seq is not None:
                raise ControlViolation(f"consumer {consumer_id} is there, and its put has a seq")
            known.config = config or {}
        elif seq is None:
            if not self.partial:
                raise ControlViolation(f"consumer {consumer_id} was never made, and its put has no seq")
        elif any(one.name == fields["name"] for one in self.consumers.values()):
            raise ControlViolation(f"there is a consumer named {fields['name']} already")
        else:
            self.consumers[consumer_id] = SpecConsumer(name=fields["name"], config=config or {}, cursor=seq)


def _judge_config(config: Any) -> None:
    if not is_map(config) or config.keys() != _CONFIG:
        raise ControlViolation(f"the config of a consumer is {config}")
    if config["consistency"] not in ("at_least_once", "strictly_at_once") or not is_seq(config["persist_every"]):
        raise ControlViolation(f"the config of a consumer is {config}")


def are_readers(value: Any) -> bool:
    """Whether this equals what a section says of consumers."""
    return isinstance(value, list) and bool(value) and all(map(_is_reader, value))


def _is_reader(value: Any) -> bool:
    return (
        is_map(value)
        and value.keys() == _FIELDS
        and is_consumer_name(value["name"])
        and is_map(value["config"])
        and is_seq(value["consumer_id"])
        and is_u64(value["cursor"])
    )


def meet_readers(readers: Readers, fields: dict[str, Any]) -> None:
    """The replay has come to a section's `as_of`: take over what the log could not know, and compare the rest."""
    said = {
        one["consumer_id"]: SpecConsumer(name=one["name"], config=one["config"], cursor=one["cursor"])
        for one in fields.get("consumers", [])
    }
    if list(said) != sorted(said):
        raise ControlViolation(f"consumers are not in order: {list(said)}")
    if len({one.name for one in said.values()}) < len(said):
        raise ControlViolation("two consumers of one name")
    if any(one.cursor > fields["head_seq"] for one in said.values()):
        raise ControlViolation(f"a consumer stands beyond the head: {said}")
    for one in said.values():
        _judge_config(one.config)
    if readers.partial:
        readers.consumers, readers.partial = said, False
    elif readers.consumers != said:
        raise ControlViolation(f"consumers are {said}, the frames come to {readers.consumers}")
