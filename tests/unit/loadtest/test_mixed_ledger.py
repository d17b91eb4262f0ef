"""The ledger of the mixed load finds every kind of fault, and none in a correct history."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from loadtest.mixed_ledger import Lease, Stamp, Topic, Verdict, judge

Held = dict[str, dict[int, Stamp]]
Fault = Callable[[dict[str, Topic], Held], object]


def ran() -> tuple[dict[str, Topic], Held]:
    """Two writers of three records each in "t", read by two; five jobs in "q", of which two are done and one is dead. A
    router copies "t"."""
    log, queue = Topic(), Topic()
    for seq, (writer, number) in enumerate([("a", 1), ("b", 1), ("a", 2), ("b", 2), ("b", 3), ("a", 3)], 1):
        log.wrote(seq, [(writer, number)])
    log.saw("consumer", [1, 2, 3])
    log.saw("consumer", [4, 5, 6])
    log.saw("watcher", [3, 4, 5, 6])  # it came later
    queue.wrote(1, [("c", number) for number in range(1, 6)])
    queue.done.update([2, 3])
    queue.done_at.update({2: 30.0, 3: 30.0})
    queue.leases[2] = [Lease("x", 10, 11, until=15), Lease("y", 12, 16, until=20), Lease("z", 20, 21, until=25)]
    held = {"t": dict(log.acked), "q": {seq: stamp for seq, stamp in queue.acked.items() if seq not in (2, 3, 4)}}
    held["dead"] = {1: queue.acked[4]}
    held["copies"] = {seq + 10: stamp for seq, stamp in log.acked.items()}
    return {"t": log, "q": queue}, held


def verdict_of(*faults: Fault) -> Verdict:
    topics, held = ran()
    for fault in faults:
        fault(topics, held)
    return judge(topics, held, queues=["q"], dead={"q": "dead"}, routed={"copies": "t"})


def test_a_correct_history_has_no_problem() -> None:
    verdict = verdict_of()
    assert verdict.holds
    assert verdict.problems == []
    assert (verdict.acknowledged, verdict.delivered, verdict.jobs_done) == (11, 10, 2)
    assert (verdict.copied, verdict.dead, verdict.leases) == (6, 1, 3)


FAULTS: list[tuple[str, Fault]] = [
    ("lost", lambda topics, held: held["t"].pop(3)),
    ("lost", lambda topics, held: topics["t"].read["consumer"].remove(4)),
    ("lost", lambda topics, held: held["q"].pop(5)),
    ("doubled", lambda topics, held: topics["t"].read["watcher"].append(6)),
    ("doubled", lambda topics, held: held["t"].update({7: ("a", 3)})),  # stored twice, and never written
    ("doubled", lambda topics, held: held["t"].update({7: ("z", 1)})),
    ("doubled", lambda topics, held: topics["q"].done.update([2])),
    ("doubled", lambda topics, held: held["q"].update({2: ("c", 2)})),
    ("lost", lambda topics, held: held["dead"].pop(1)),
    ("lost", lambda topics, held: held["copies"].pop(12)),
    ("doubled", lambda topics, held: held["dead"].update({2: ("c", 4)})),  # died twice
    ("doubled", lambda topics, held: held["dead"].update({2: ("c", 2)})),  # and was acked
    ("doubled", lambda topics, held: held["dead"].update({2: ("z", 1)})),
    ("doubled", lambda topics, held: held["copies"].update({17: ("a", 3)})),
    ("doubled", lambda topics, held: held["copies"].update({17: ("z", 1)})),
    ("doubled", lambda topics, held: topics["q"].leases[2].append(Lease("w", 31, 32, until=40))),  # after its ack
    ("disordered", lambda topics, held: held["copies"].update({12: ("a", 2), 13: ("b", 1)})),
    ("double_leases", lambda topics, held: topics["q"].leases[2].append(Lease("w", 22, 24, until=26))),
    ("disordered", lambda topics, held: topics["t"].read["consumer"].reverse() or topics["t"].read.pop("watcher")),
]


@pytest.mark.parametrize(("kind", "fault"), FAULTS)
def test_a_fault_is_found(kind: str, fault: Fault) -> None:
    verdict = verdict_of(fault)
    assert not verdict.holds
    assert verdict.problems
    assert getattr(verdict, kind) >= 1


def test_a_seq_shared_by_two_writes_is_found() -> None:
    verdict = verdict_of(lambda topics, held: topics["t"].wrote(6, [("c", 1)]))
    assert verdict.doubled


def test_records_of_a_writer_in_another_order_are_found() -> None:
    def swap(topics: dict[str, Topic], held: Held) -> None:
        acked = topics["t"].acked
        acked[1], acked[3] = acked[3], acked[1]
        held["t"] = dict(acked)
        held["copies"] = dict(acked)

    assert verdict_of(swap).disordered == 1


def test_an_unanswered_request_may_have_been_done_or_not() -> None:
    def unanswered(topics: dict[str, Topic], held: Held) -> None:
        topics["t"].open.update([("a", 4), ("a", 5)])
        held["t"][7] = ("a", 4)
        for seqs in topics["t"].read.values():
            seqs.append(7)
        held["copies"][17] = ("a", 4)
        topics["q"].perhaps_done.update([1, 5])
        del held["q"][1]

    verdict = verdict_of(unanswered)
    assert verdict.holds, verdict.problems
    assert verdict.unanswered == 2
