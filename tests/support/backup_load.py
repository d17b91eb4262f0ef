"""Writers whose every step is known, so that a backup can be compared with one moment of their work.

A writer takes one step after the other on topics of its own, in several shards. A backup of one instant then has these
topics in the state after some step: the last one answered by then, or the one in progress.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, TypeAlias

#: For each topic: its records by seq, and its head.
State: TypeAlias = dict[str, tuple[dict[int, Any], int]]

_TAGS = ("x", "y", "z")


class Step(NamedTuple):
    """An atomic batch (`tags` of its records), or a deletion of the records with a tag, or of all below a seq."""

    topic: str
    number: int
    tags: tuple[str, ...] = ()
    match: str = ""
    before_seq: int = 0

    def records(self) -> list[dict[str, Any]]:
        return [{"data": [self.number, place], "tag": tag} for place, tag in enumerate(self.tags)]


@dataclass(slots=True)
class Writer:
    """Steps are requested one by one. `answered` is called when the step before is done."""

    name: str
    seed: int
    steps: list[Step] = field(default_factory=list[Step])
    answered: int = 0
    _heads: dict[str, int] = field(default_factory=dict[str, int])

    def next(self) -> Step:
        """The next step, which counts as in progress from now on."""
        rng = Random(f"{self.seed}-{self.name}-{len(self.steps)}")
        topic = f"{self.name}-{rng.randrange(3)}"
        head = self._heads.get(topic, 0)
        kind = rng.random()
        if not head or kind < 0.75:
            tags = tuple(rng.choice(_TAGS) for _ in range(rng.choice((1, 1, 3, 20))))
            step = Step(topic, len(self.steps), tags=tags)
            self._heads[topic] = head + len(tags)
        elif kind < 0.9:
            step = Step(topic, len(self.steps), match=rng.choice(_TAGS))
        else:
            step = Step(topic, len(self.steps), before_seq=rng.randrange(1, head + 1))
        self.steps.append(step)
        return step

    def states(self, first: int, last: int) -> list[State]:
        """The states after step `first` to after step `last`."""
        records: dict[str, dict[int, tuple[str, Any]]] = {}
        heads: dict[str, int] = {}
        found: list[State] = []
        for count in range(last + 1):
            if count >= first:
                found.append(
                    {
                        topic: ({seq: data for seq, (_, data) in of.items()}, heads[topic])
                        for topic, of in records.items()
                    }
                )
            if count < last:
                _apply(records, heads, self.steps[count])
        return found

    def problem(self, there: State, first: int, last: int) -> str | None:
        """What is wrong with these contents of the writer's topics, if steps `first` to `last` may be the latest."""
        mine = {topic: state for topic, state in there.items() if topic.startswith(self.name + "-")}
        states = self.states(first, last)
        if mine in states:
            return None
        heads = {topic: head for topic, (_, head) in mine.items()}
        counts = {topic: len(records) for topic, (records, _) in mine.items()}
        return f"{self.name}: heads {heads}, counts {counts} are of no moment between steps {first} and {last}"


def _apply(records: dict[str, dict[int, tuple[str, Any]]], heads: dict[str, int], step: Step) -> None:
    there = records.setdefault(step.topic, {})
    head = heads.setdefault(step.topic, 0)
    if step.tags:
        for place, tag in enumerate(step.tags):
            there[head + 1 + place] = (tag, [step.number, place])
        heads[step.topic] = head + len(step.tags)
        return
    for seq in [seq for seq, (tag, _) in there.items() if tag == step.match or seq < step.before_seq]:
        del there[seq]
