"""What the readers of one consumer got over several lives of a broker, and what is wrong with that.

A life ends with a kill or a clean stop. A request without an answer by then is `lost`: nobody knows what it got, but it
was at most `limit` records. Everything else is known exactly:

- within a life no record is given twice, and none is left out, but for what lost requests were given;
- after a clean stop the next life goes on where the last one ended;
- after a kill, strictly_at_once gives nothing again, and at_least_once at most `persist_every` records again;
- a reader that is alone is left nothing out at_least_once, whatever was lost: it has not come again behind it;
- where the reader commits: each life begins behind the last commit that was answered, or behind one that was not, and
  nothing is ever left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(slots=True, kw_only=True)
class Life:
    """What the readers of a consumer got from one process."""

    given: list[int] = field(default_factory=list[int])
    #: Reads without an answer.
    lost: int = 0
    killed: bool = True


@dataclass(slots=True, kw_only=True)
class Consumed:
    """The readers of one consumer, over all lives. With `commits` there is one reader, which peeks and commits."""

    name: str
    strict: bool
    limit: int
    persist_every: int = 1000
    alone: bool = False
    commits: bool = False
    lives: list[Life] = field(default_factory=lambda: [Life()])
    #: Seqs at which a commit may have left the cursor: the last answered one, then those without an answer.
    may_be_at: list[int] = field(default_factory=lambda: [0])
    problems: list[str] = field(default_factory=list[str])

    def given(self, life: int, seqs: list[int]) -> None:
        """A read in that life was answered."""
        if any(after <= before for before, after in pairwise(seqs)):
            self.problems.append(f"{self.name}: out of order in one answer: {seqs}")
        if len(seqs) > self.limit:
            self.problems.append(f"{self.name}: {len(seqs)} records where {self.limit} were asked for")
        self.lives[life].given += seqs

    def peeked(self, life: int, cursor_seq: int, seqs: list[int]) -> None:
        """A read that does not move the cursor was answered."""
        if cursor_seq not in self.may_be_at:
            self.problems.append(f"{self.name}: behind {cursor_seq} where {self.may_be_at} is possible")
        elif seqs and seqs[0] != cursor_seq + 1:
            self.problems.append(f"{self.name}: {seqs[0]} came behind {cursor_seq}")
        self.may_be_at = [cursor_seq]
        self.given(life, seqs)

    def committing(self, seq: int) -> None:
        """A commit is sent."""
        self.may_be_at.append(seq)

    def committed(self, seq: int) -> None:
        """The commit was answered."""
        self.may_be_at = [seq]

    def check(self, head_seq: int) -> list[str]:
        """What is wrong, once everything up to `head_seq` has been read."""
        return self.problems + (self._committing(head_seq) if self.commits else self._handing_out(head_seq))

    def _committing(self, head_seq: int) -> list[str]:
        missing = set(range(1, head_seq + 1)).difference(*(life.given for life in self.lives))
        return [f"{self.name}: never given: {sorted(missing)}"] if missing else []

    def _handing_out(self, head_seq: int) -> list[str]:
        problems: list[str] = []
        highest, ever = 0, set[int]()
        excused = 0
        for number, life in enumerate(self.lives):
            here = set(life.given)
            if len(here) < len(life.given):
                twice = sorted(seq for seq in here if life.given.count(seq) > 1)
                problems.append(f"{self.name}: twice in life {number}: {twice}")
            again = here & ever
            clean = number > 0 and not self.lives[number - 1].killed
            most = 0 if clean or self.strict else self.persist_every
            if len(again) > most:
                problems.append(f"{self.name}: again in life {number}, over the {most} allowed: {sorted(again)}")
            # Lost answers of this life, and of the life before: only this life shows what those took.
            excused = (excused if number else 0) + life.lost * self.limit
            first = min(here, default=highest + 1)
            last = max(here, default=highest)
            if again and sorted(again) != [seq for seq in range(min(again), max(again) + 1) if seq in ever]:
                problems.append(f"{self.name}: life {number} gave again what does not hang together: {sorted(again)}")
            missing = set(range(min(first, highest + 1), last + 1)) - here - ever
            if self.alone and not self.strict:
                excused = 0
            if len(missing) > excused:
                problems.append(f"{self.name}: left out in life {number}: {sorted(missing)}, excused {excused}")
            excused = life.lost * self.limit
            ever |= here | missing
            highest = max(highest, last)
        if highest < head_seq:
            problems.append(f"{self.name}: not given at the end: {highest + 1} to {head_seq}")
        return problems
