"""Writes histories of a queue by hand, line by line, for the checker's own tests.

Times are ms from 0. "a takes 1 at 10" means requested at 10 and answered at 11.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from tests.support.kill_ledger import Outcome
from tests.support.queue_check import check, violations
from tests.support.queue_history import (
    Act,
    Claim,
    Clock,
    Dead,
    History,
    Lease,
    Observation,
    Operation,
    Pause,
    Produce,
    Purge,
    Redrive,
    Rules,
    Settle,
    Stream,
)

LEASE_MS = 100
OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN


class ScriptClock(Clock):
    """Returns the time that the script sets."""

    def __init__(self) -> None:
        self.ms = 0.0

    def __call__(self) -> float:
        return self.ms


class ClaimedJob(NamedTuple):
    """A lease in a claim's answer. By default it begins at the time of the request."""

    seq: int
    token: str
    deliveries: int = 1
    deadline: int = 0
    name: str = ""


class Script:
    """Writes a history line by line. Jobs are called j1, j2, ... after their seqs; `over`: from when to when."""

    def __init__(self, *, leases_durable: bool = False, max_deliveries: int = 0, retry_backoff_ms: int = 0) -> None:
        self.clock = ScriptClock()
        rules = Rules(
            leases_durable=leases_durable, max_deliveries=max_deliveries, retry_backoff_ms=retry_backoff_ms, slack_ms=0
        )
        self.history = History(rules, self.clock)

    def note(self, operation: Operation, at: float, took: float, outcome: Outcome) -> None:
        self.clock.ms = at
        self.history.begin(operation)
        self.clock.ms = at + took
        if outcome is OK:
            self.history.ok(operation)
        elif outcome is FAILED:
            self.history.failed(operation)

    def jobs(self, *seqs: int, at: float = 0, outcome: Outcome = OK, delay_ms: int = 0) -> None:
        first = seqs[0] if outcome is OK else 0
        names = tuple(f"j{seq}" for seq in seqs)
        self.note(Produce(node="p", names=names, first_seq=first, delay_ms=delay_ms), at, 1, outcome)

    def takes(
        self, node: str, *given: ClaimedJob, at: float, took: float = 1, outcome: Outcome = OK, **more: Any
    ) -> None:
        leases = tuple(
            Lease(
                each.seq, each.token, each.deadline or int(at) + LEASE_MS, each.deliveries, each.name or f"j{each.seq}"
            )
            for each in given
        )
        self.note(Claim(node=node, max=10, lease_ms=LEASE_MS, leases=leases, **more), at, took, outcome)

    def settles(
        self, act: Act, node: str, *pairs: tuple[int, str | None], at: float, took: float = 1, outcome: Outcome = OK,
        **more: Any,
    ) -> None:  # fmt: skip
        seqs, tokens = tuple(seq for seq, _ in pairs), tuple(token for _, token in pairs)
        settle = Settle(node=node, act=act, seqs=seqs, tokens=tokens, **more)
        self.note(settle, at, took, outcome)

    def acks(self, node: str, *pairs: tuple[int, str | None], **more: Any) -> None:
        self.settles(Act.ACK, node, *pairs, **more)

    def nacks(self, node: str, *pairs: tuple[int, str | None], **more: Any) -> None:
        self.settles(Act.NACK, node, *pairs, **more)

    def extends(self, node: str, seq: int, token: str, *, at: float, ms: int, **more: Any) -> None:
        more.setdefault("deadlines", {seq: int(at + ms)})
        self.settles(Act.EXTEND, node, (seq, token), at=at, lease_ms=ms, **more)

    def refuses(self, act: Act, node: str, *pairs: tuple[int, str], lost: Sequence[int], at: float) -> None:
        """A strict one."""
        self.settles(act, node, *pairs, at=at, outcome=FAILED, strict=True, refused=frozenset(lost))

    def crash(self, at: float, *, clean: bool = False) -> None:
        self.clock.ms = at
        self.history.ended(clean=clean)
        self.history.started()

    def looks(
        self,
        *present: int,
        at: float,
        dead: Sequence[Dead] = (),
        final: bool = False,
        paused: bool | None = None,
        again: dict[int, str] | None = None,
    ) -> None:
        """`again`: names of jobs that are there under another seq than their own."""
        there = {seq: f"j{seq}" for seq in present} | (again or {})
        self.note(Observation(node="looker", present=there, dead=tuple(dead), final=final, paused=paused), at, 1, OK)

    # -- the whole queue ---------------------------------------------------------------------------------------------

    def pauses(self, *, at: float, paused: bool = True, took: float = 1, outcome: Outcome = OK) -> None:
        self.note(Pause(node="operator", paused=paused), at, took, outcome)

    def purges(self, purged: int, *, at: float, took: float = 1, outcome: Outcome = OK) -> None:
        self.note(Purge(node="operator", states=("ready", "delayed"), purged=purged), at, took, outcome)

    def redrives(self, moved: int, *, at: float, took: float = 1, outcome: Outcome = OK) -> None:
        self.note(Redrive(node="operator", max=10, moved=moved), at, took, outcome)

    # -- streams -----------------------------------------------------------------------------------------------------

    def opens(self, node: str, *, at: float, max: int = 1) -> Stream:
        self.clock.ms = at
        return self.history.begin(Stream(node=node, max=max, lease_ms=LEASE_MS))

    def brings(self, stream: Stream, given: ClaimedJob, *, at: float) -> None:
        """Pushed and received at that time."""
        self.clock.ms = at
        deadline = given.deadline or int(at) + LEASE_MS
        self.history.pushed(
            stream, Lease(given.seq, given.token, deadline, given.deliveries, given.name or f"j{given.seq}")
        )

    def leaves(self, stream: Stream, *given: ClaimedJob, at: float, cut: bool = False) -> None:
        self.clock.ms = at
        leases = [Lease(each.seq, each.token, 0, each.deliveries, f"j{each.seq}") for each in given]
        self.history.left(stream, leases, grace_ms=10, cut=cut)

    def wrong(self, sentence: str) -> None:
        with pytest.raises(AssertionError, match=sentence):
            check(self.history)

    def right(self) -> None:
        assert violations(self.history) == []
