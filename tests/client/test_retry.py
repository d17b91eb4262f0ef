"""When a call is repeated and how long the wait before it is, without a network and without waiting."""

from __future__ import annotations

import heapq
import random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.fake_broker import error
from topics_client import calls
from topics_client.errors import (
    ConnectionFailed,
    DeadlineExceeded,
    StorageFull,
    Throttled,
    TopicNotFound,
    TopicsError,
    Unavailable,
)
from topics_client.retry import Pause, RetryBudget, RetryPolicy, exchange
from topics_client.wire import Call, NoReply, Reply, Request

UNREACHABLE = NoReply(reason="No broker can be reached.", sent=False)
BROKEN = NoReply(reason="The connection broke.", sent=True)
APPENDED = Reply(
    status=200, headers={}, body=b'{"topic":"t","first_seq":1,"last_seq":1,"head_seq":1,"count":1,"created":true}'
)
HEADERS_3_S = {"Retry-After": "3"}


def refusal(status: int, code: str, **particulars: Any) -> Reply:
    response = error(status, code, "No.", **particulars)
    return Reply(status=status, headers=response.headers, body=response.content)


class ScriptedExchange:
    """Simulates the network and the clock: answers each request with the next outcome, and ends waits at once."""

    def __init__(
        self, call: Call[Any], outcomes: list[Reply | NoReply], policy: RetryPolicy, draw: float = 1.0
    ) -> None:
        self.requests: list[Request] = []
        self.waits_s: list[float] = []
        self.now_s = 1000.0
        self._outcomes = iter(outcomes)
        self._steps = exchange(call, policy, now=lambda: self.now_s, draw=lambda: draw, budget=RetryBudget())

    def run(self) -> Any:
        outcome: Reply | NoReply | None = None
        while True:
            try:
                step = self._steps.send(outcome)
            except StopIteration as done:
                return done.value
            if isinstance(step, Pause):
                self.waits_s.append(step.seconds)
                self.now_s += step.seconds
                outcome = None
            else:
                self.requests.append(step)
                outcome = next(self._outcomes)


def run(call: Call[Any], *outcomes: Reply | NoReply, **settings: Any) -> ScriptedExchange:
    play = ScriptedExchange(call, list(outcomes), RetryPolicy(**settings))
    play.run()
    return play


def append() -> Call[Any]:
    return calls.append("t", [1], {})


@pytest.mark.parametrize(
    "first",
    [
        UNREACHABLE,
        BROKEN,
        refusal(429, "throttled", detail={"retry_after_ms": 5}),
        refusal(503, "wal_saturated"),
        refusal(503, "storage_failed"),
        refusal(503, "not_ready"),
        refusal(507, "storage_full"),
        Reply(status=502, headers={}, body=b"<html>bad gateway</html>"),
    ],
)
def test_an_append_is_repeated_with_the_same_bytes_and_so_the_same_key(first: Reply | NoReply) -> None:
    play = run(append(), first, APPENDED)
    assert len(play.requests) == 2
    assert play.requests[0].body == play.requests[1].body
    assert b"idempotency_key" in (play.requests[0].body or b"")


@pytest.mark.parametrize(
    "final", [refusal(400, "invalid_request"), refusal(404, "topic_not_found"), refusal(422, "topic_full")]
)
def test_a_permanent_refusal_is_not_repeated(final: Reply) -> None:
    play = ScriptedExchange(append(), [final], RetryPolicy())
    with pytest.raises(TopicsError) as caught:
        play.run()
    assert caught.value.tries == 1
    assert play.waits_s == []


def test_a_limit_that_only_a_delete_lifts_is_not_waited_for() -> None:
    with pytest.raises(Throttled, match="No"):
        run(append(), refusal(429, "throttled", detail={"limit": "max_topics", "max": 5}))


def test_a_limit_that_other_requests_free_is_waited_for() -> None:
    play = run(append(), refusal(429, "throttled", detail={"limit": "max_inflight_per_key", "max": 5}), APPENDED)
    assert len(play.requests) == 2


def test_a_delete_that_certainly_did_not_happen_is_repeated() -> None:
    deleted = Reply(status=200, headers={}, body=b'{"topic":"t","deleted":true}')
    assert len(run(calls.delete_topic("t"), UNREACHABLE, refusal(503, "not_ready"), deleted).requests) == 3


@pytest.mark.parametrize("unsure", [BROKEN, refusal(503, "storage_failed")])
@pytest.mark.parametrize(
    "call", [calls.delete_topic("t"), calls.delete_records("t", before_seq=None, match="x")], ids=["topic", "records"]
)
def test_a_delete_that_may_have_happened_is_not_repeated(call: Call[Any], unsure: Reply | NoReply) -> None:
    with pytest.raises(TopicsError) as caught:
        run(call, unsure)
    assert caught.value.outcome == "unknown"


def test_a_readiness_check_is_not_repeated() -> None:
    with pytest.raises(Unavailable):
        run(calls.ready(), refusal(503, "not_ready"))


def test_waits_double_up_to_the_cap() -> None:
    play = run(append(), *[UNREACHABLE] * 6, APPENDED, base_s=0.1, cap_s=1.0)
    assert play.waits_s == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 2000))
def test_a_wait_is_random_between_zero_and_its_bound(draw: float, tries: int) -> None:
    policy = RetryPolicy(base_s=0.05, cap_s=5.0)
    wait = policy.backoff_s(tries, ConnectionFailed("gone"), draw)
    assert wait == pytest.approx(draw * min(5.0, 0.05 * 2 ** min(tries, 20) / 2))


def test_retry_after_is_waited_before_the_random_part() -> None:
    play = run(append(), refusal(503, "wal_saturated", headers=HEADERS_3_S), APPENDED, base_s=0.5)
    assert play.waits_s == pytest.approx([3.5])


def test_retry_after_ms_is_finer_and_wins_over_the_header() -> None:
    first = refusal(429, "throttled", detail={"retry_after_ms": 250}, headers=HEADERS_3_S)
    assert run(append(), first, APPENDED, base_s=0).waits_s == pytest.approx([0.25])


def test_retrying_ends_with_the_last_error_when_the_next_try_would_come_too_late() -> None:
    play = ScriptedExchange(append(), [UNREACHABLE] * 99, RetryPolicy(total_s=10.0, base_s=1.0, cap_s=4.0))
    with pytest.raises(ConnectionFailed, match=r"Gave up after 4 tries in 7\.0 s") as caught:
        play.run()
    assert play.waits_s == [1, 2, 4]
    assert (caught.value.tries, caught.value.tried_for_s) == (4, 7.0)


def test_a_wait_longer_than_the_remaining_time_is_not_begun() -> None:
    play = ScriptedExchange(
        append(), [refusal(507, "storage_full", headers={"Retry-After": "900"})], RetryPolicy(total_s=60)
    )
    with pytest.raises(StorageFull):
        play.run()
    assert play.waits_s == []


def test_no_call_is_repeated_with_a_total_time_of_zero() -> None:
    with pytest.raises(Unavailable):
        run(append(), refusal(503, "wal_saturated"), total_s=0)


def test_without_reconnecting_only_answered_calls_are_repeated() -> None:
    assert len(run(append(), refusal(503, "not_ready"), APPENDED, reconnect=False).requests) == 2
    with pytest.raises(ConnectionFailed):
        run(append(), UNREACHABLE, reconnect=False)


def test_an_error_of_the_request_is_raised_unchanged() -> None:
    with pytest.raises(TopicNotFound):
        run(calls.state("t"), refusal(404, "topic_not_found"))


def test_a_repetition_beyond_the_budget_waits() -> None:
    budget = RetryBudget(share=0.5, per_second=2.0, burst=2.0)
    assert [budget.wait_s(100.0) for _ in range(4)] == [0.0, 0.0, 0.5, 1.0]
    # Each second earns two, and each call earns a half.
    assert budget.wait_s(101.0) == 0.5
    budget.earn()
    budget.earn()
    assert budget.wait_s(101.0) == 0.5
    budget.give_back()
    assert budget.wait_s(101.0) == 0.5
    # No more is saved than `burst`.
    assert [budget.wait_s(200.0) for _ in range(3)] == [0.0, 0.0, 0.5]


def test_many_calls_at_once_share_the_budget() -> None:
    """A broker that does not answer gets a bounded rate of retries, however many calls there are. A call ends by its
    policy, not because the budget is empty.
    """
    budget = RetryBudget(share=0.0, per_second=10.0, burst=20.0)
    policy = RetryPolicy(total_s=30.0, cap_s=0.5)
    draw = random.Random(1).random
    now_s = 0.0
    call = calls.health()
    waiting: list[tuple[float, int, Any]] = []
    for number in range(100):
        steps = exchange(call, policy, now=lambda: now_s, draw=draw, budget=budget)
        next(steps)
        waiting.append((0.0, number, steps))
    tries = [0] * 100
    while waiting:
        now_s, number, steps = heapq.heappop(waiting)
        if tries[number]:
            assert isinstance(steps.send(None), Request)
        tries[number] += 1
        try:
            pause = steps.send(NoReply(reason="away", sent=False))
        except ConnectionFailed:
            continue
        assert isinstance(pause, Pause)
        # Within what the policy allows.
        assert now_s + pause.seconds <= policy.total_s + 0.001
        heapq.heappush(waiting, (now_s + pause.seconds, number, steps))
    assert min(tries) >= 2
    retries = sum(tries) - 100
    # Without a budget there would be more than ten thousand. Each call has few unearned retries: the remaining time
    # halves with each of them.
    assert 100 <= retries <= 20 + 10 * policy.total_s + 5 * 100


class TryPlan(NamedTuple):
    """A planned attempt: its outcome and duration, the random number for the wait after it, and how late that wait
    ends."""

    outcome: Reply | NoReply
    seconds: float
    draw: float
    late_s: float


TRIES = st.builds(
    TryPlan,
    st.sampled_from([UNREACHABLE, BROKEN, APPENDED, refusal(503, "wal_saturated"), refusal(429, "throttled")]),
    st.sampled_from([0.0, 0.01, 1.0]),
    st.floats(0, 1, exclude_max=True),
    st.sampled_from([0.0, 0.5]),
)


#: More than in a call whose attempts take any time: 6 s at 0.01 s each.
MANY_TRIES = 1000


@given(st.lists(TRIES, min_size=1, max_size=30), st.sampled_from([-1.0, 0.0, 0.3, 2.0, 9.0]), st.floats(0, 30))
def test_no_try_begins_at_or_after_the_deadline(tries: list[TryPlan], seconds: float, burst: float) -> None:
    clock = 1000.0
    ends = clock + seconds
    left = iter(tries)
    current = tries[0]
    unsure = False
    made = 0
    call = append()
    budget = RetryBudget(per_second=1, burst=burst)
    policy = RetryPolicy(total_s=6.0)
    steps = exchange(call, policy, now=lambda: clock, draw=lambda: current.draw, budget=budget, ends_s=ends)
    outcome: Reply | NoReply | None = None
    try:
        while True:
            step = steps.send(outcome)
            if isinstance(step, Pause):
                assert clock + step.seconds <= ends
                clock += step.seconds + current.late_s
                outcome = None
                continue
            assert clock < ends
            assert step.limit_s == ends - clock
            assert (step.body, step.target) == (call.request.body, call.request.target)
            current = next(left, current)
            made += 1
            clock += current.seconds
            outcome = current.outcome
            unsure = unsure or outcome is BROKEN
            if made == MANY_TRIES:
                return  # the waits are too short for an end
    except (StopIteration, TopicsError) as ended:
        end: Exception = ended
    if isinstance(end, DeadlineExceeded):
        assert end.tries == max(made, 1)
        assert end.outcome == ("unknown" if unsure else "none")
        assert (end.__cause__ is None) == (made == 0)
    elif isinstance(end, TopicsError):
        # Ended by the policy, as without a deadline.
        assert end.tried_for_s + policy.cap_s > policy.total_s
        assert clock < ends
    else:
        assert outcome is APPENDED


def test_a_call_after_the_deadline_sends_no_request() -> None:
    steps = exchange(append(), RetryPolicy(), now=lambda: 5.0, draw=lambda: 0.5, budget=RetryBudget(), ends_s=5.0)
    with pytest.raises(DeadlineExceeded, match="before the call was made") as caught:
        next(steps)
    assert (caught.value.outcome, caught.value.transient) == ("none", False)


def test_a_call_that_must_not_be_repeated_reports_the_deadline() -> None:
    clock = iter([0.0, 0.0, 3.0])
    steps = exchange(
        calls.delete_topic("t"), RetryPolicy(), now=lambda: next(clock), draw=float, budget=RetryBudget(), ends_s=3.0
    )
    next(steps)
    with pytest.raises(DeadlineExceeded, match="broke") as caught:
        steps.send(BROKEN)
    assert caught.value.outcome == "unknown"
