"""Compares a reopened engine with the ledger of a session with routers.

- Every record that was promised is in its topic, once; a record stands once in any topic, whatever came in between.
- For each router: what its source holds and it should copy is at dest, once, in order; what is missing there is the end
  of it, and only while the router is blocked, or said to be lost.
- Routers whose making was answered are there, those whose deletion was answered are not.
"""

from __future__ import annotations

from storage import Discard, Durability, Engine, StoredRecord
from tests.support.crash_check import End, Ending
from tests.support.crash_ledger import Outcome
from tests.support.crash_view import TopicView, view
from tests.support.route_session import Route, RouteLedger
from tests.support.sent_session import Sent


def number_of(record: StoredRecord) -> int:
    """Which record it is, or which record it is a copy of."""
    return int(record.body[len(b'{"data":{"n":') :].partition(b",")[0])


async def check(engine: Engine, ledger: RouteLedger, ending: Ending) -> list[str]:
    """What is wrong. The engine has had time to forward."""
    return _Check(ledger, ending, await view(engine), engine).run()


class _Check:
    def __init__(self, ledger: RouteLedger, ending: Ending, topics: dict[str, TopicView], engine: Engine) -> None:
        self.ledger = ledger
        self.ending = ending
        self.topics = topics
        self.routers = {state.name: state for state in engine.routers.page(limit=1000)}
        self.problems = [problem for topic in topics.values() for problem in topic.problems]

    def run(self) -> list[str]:
        for name, topic in self.topics.items():
            numbers = [number_of(record) for record in topic.records]
            if len(numbers) != len(set(numbers)):
                self.problems.append(f"{name} holds something twice: {numbers}")
        for sent in self.ledger.sent:
            self._sent(sent)
        for route in self.ledger.routes:
            self._route(route)
        for name in self.routers.keys() - {route.name for route in self.ledger.routes}:
            self.problems.append(f"router {name} is there, and nobody has made it")
        return self.problems

    def _sent(self, sent: Sent) -> None:
        topic = self.topics.get(sent.topic)
        if sent.topic in self.ledger.gone | self.ledger.capped or sent.deleted:
            return
        there = topic is not None and any(number_of(record) == sent.number for record in topic.records)
        kept = sent.safe or (self.ending.end is End.KILL and not sent.volatile)
        if sent.outcome is Outcome.DONE and kept and not there:
            self.problems.append(f"record {sent.number} of {sent.topic} is lost")
        if sent.outcome is Outcome.DONE and not there:
            sent.outcome = Outcome.OPEN  # lost, as its class allows: it must not be counted as missing again
        if sent.outcome is Outcome.REFUSED and there:
            self.problems.append(f"record {sent.number} of {sent.topic} was refused, and is there")

    def _route(self, route: Route) -> None:
        others = [each for each in self.ledger.routes if each.name == route.name and each is not route]
        state = self.routers.get(route.name)
        if state is None:
            if route.made is Outcome.DONE and route.deleted is None:
                self.problems.append(f"router {route.name} is gone, and nobody has deleted it")
            return
        if route.deleted is Outcome.DONE and not others:
            self.problems.append(f"router {route.name} was deleted for good, and is there")
        if not others and route.made is not Outcome.REFUSED:
            self._copies(route)

    def _copies(self, route: Route) -> None:
        source, dest = self.topics.get(route.definition.source), self.topics.get(route.definition.dest)
        if source is None or dest is None:
            self.problems.append(f"router {route.name} is there without its topics")
            return
        state, dest_config = self.routers[route.name], dest.state.config
        match = route.definition.match
        wanted = [
            number_of(record)
            for record in source.records
            if number_of(record) >= route.begins_at and (match is None or match.matches(record.tag))
        ]
        found = [number_of(record) for record in dest.records]
        copies = [number for number in found if number in set(wanted)]
        if dest_config.durability is Durability.EPHEMERAL:
            begin = max(self.ledger.restarts, default=0)
            wanted, copies = [n for n in wanted if n >= begin], [n for n in copies if n >= begin]
        lost = any(each.reason in ("source_trim", "mixed") for each in dest.tombstones)
        if dest_config.discard is Discard.OLD and (dest_config.cap_records or dest_config.cap_bytes):
            wanted = [number for number in wanted if number in set(copies)]  # the others were evicted, or are too large
        if copies != [number for number in wanted if number in set(copies)]:
            self.problems.append(f"router {route.name}: {copies} came in another order than {wanted}")
        missing = [number for number in wanted if number not in set(copies)]
        if missing and not lost and (state.blocked is None or missing != wanted[len(wanted) - len(missing) :]):
            self.problems.append(f"router {route.name}: {missing} of {wanted} did not come; {state}")
        if state.blocked is None and state.lag:
            self.problems.append(f"router {route.name} is behind: {state}")
