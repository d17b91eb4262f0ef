"""Compares a reopened engine with the ledger of a session with consumers.

- Consumers whose making was answered are there, those whose deletion was answered are not.
- No cursor is behind what was said to be durable, none beyond what has reached its readers, or the head; what comes
  again is no more than persist_every allows, and nothing where it is strictly at once.
- Reading on from there gives every record behind it, once, in order, and no other.
"""

from __future__ import annotations

from storage import ReadQuery, StoredRecord
from storage.state.consumers.values import ConsumerState
from tests.support.crash_ledger import Outcome
from tests.support.crash_view import view
from tests.support.reader_session import Life, ReaderSession, number_of


async def check(session: ReaderSession, *, killed: bool) -> list[str]:
    """What is wrong right after a recovery. The ledger continues from what was found.

    `killed`: only the process died, so nothing acked may be missing.
    """
    engine, ledger = session.engine, session.ledger
    topics = await view(engine)
    problems = [problem for topic in topics.values() for problem in topic.problems]
    for each in ledger.sent:
        topic = topics.get(each.topic)
        there = topic is not None and any(number_of(record) == each.number for record in topic.records)
        if each.outcome is Outcome.DONE and not there and each.topic not in ledger.gone | ledger.capped:
            if each.safe or killed:
                problems.append(f"record {each.number} of {each.topic} is lost")
            each.outcome = Outcome.OPEN
    found = {
        (topic, state.consumer): state
        for topic, seen in topics.items()
        if seen.state.config.durability != "ephemeral" and seen.state.config.type == "log"
        for state in engine.consumers.list(topic, limit=1000)
    }
    for life in ledger.lives:
        if life.topic not in topics:
            if life.topic not in ledger.gone and life.made is Outcome.DONE:
                problems.append(f"{life.topic} is gone, and {life.name} with it")
            continue
        others = [each for each in ledger.lives if (each.topic, each.name) == (life.topic, life.name)]
        if life is not others[-1]:
            continue
        state = found.pop((life.topic, life.name), None)
        if state is None:
            if life.made is Outcome.DONE and life.deleted is None:
                problems.append(f"{life.name} of {life.topic} is gone, and nobody has deleted it")
            if life.made is not Outcome.DONE:
                life.made = Outcome.REFUSED
            if life.deleted is Outcome.OPEN:
                life.deleted = Outcome.DONE
        elif life.deleted is Outcome.DONE:
            problems.append(f"{life.name} of {life.topic} was deleted for good, and is there")
        elif len(others) == 1 or others[-2].deleted is Outcome.DONE:
            life.made, life.deleted = Outcome.DONE, None
            problems += _judge(life, state, topics[life.topic].records)
    problems += [f"{name} of {topic} is there, and nobody has made it" for topic, name in found]
    return problems


def _judge(life: Life, state: ConsumerState, records: list[StoredRecord]) -> list[str]:
    """Compare the position of the cursor with what it may be."""
    seq, who = state.cursor_seq, f"{life.name} of {life.topic}"
    problems: list[str] = []
    if seq > state.head_seq or state.durable_seq != seq:
        problems.append(f"{who} stands at {seq} ({state.durable_seq}), the head is {state.head_seq}")
    if seq not in life.maybe:
        again = [each for each in life.handed if each[0] > seq]
        taken = [record.seq for record in records if life.cursor_seq < record.seq <= seq]
        if seq < life.floor_seq:
            problems.append(f"{who} is back at {seq}, and {life.floor_seq} was durable")
        if len(again) > (0 if life.strict else life.persist_every):
            problems.append(f"{who} is back at {seq}: {len(again)} records come again, {life.persist_every} may")
        if len(taken) > life.ahead:
            problems.append(f"{who} is at {seq}, and {taken} behind {life.cursor_seq} have reached nobody")
    life.floor_seq = life.cursor_seq = seq
    life.maybe, life.ahead, life.handed = [], 0, []
    return problems


async def read_on(session: ReaderSession) -> list[str]:
    """Read everything that each consumer has yet to read, and compare it with what is there."""
    problems: list[str] = []
    engine = session.engine
    topics = await view(engine)
    for life in session.ledger.lives:
        topic = topics.get(life.topic)
        known = topic is not None and any(one.consumer == life.name for one in engine.consumers.list(life.topic))
        if topic is None or not known or session.ledger.life(life.topic, life.name) is not life:
            continue
        state = engine.consumers.state(life.topic, life.name)
        wanted = [record.seq for record in topic.records if record.seq > state.cursor_seq]
        if state.unread != len(wanted):
            problems.append(f"{life.name} has {state.unread} unread records, and there are {len(wanted)}")
        came: list[int] = []
        before = set(life.seen)
        for _ in range(1000):
            answer = await engine.consumers.read(life.topic, life.name, ReadQuery(limit=3))
            records = answer.result.records
            came += [record.seq for record in records]
            if life.strict and (twice := before & {number_of(record) for record in records}):
                problems.append(f"{life.name} is strictly at once, and was handed {twice} twice")
            session.take(life, records, answer.cursor_seq)
            if not records and answer.cursor_seq >= answer.result.head_seq:
                break
        if came != wanted:
            problems.append(f"{life.name} of {life.topic} was given {came}, and there is {wanted}")
    return problems
