"""A group whose members do anything in any order: each generation has one assignment, and every wait ends."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.kafka.errors import ErrorCode
from broker.kafka.groups.states import State
from tests.unit.kafka.groups.bench import Bench

REBALANCE_MS = 20_000
PLACES = st.integers(0, 4)
PROTOCOLS = st.sampled_from(["ab", "ba", "a", "b", "abc"]).map(lambda names: tuple((each, b"") for each in names))


class Client:
    """One client and what it has been told. The last two are static members."""

    def __init__(self, place: int) -> None:
        self.instance_id = f"i{place}" if place >= 3 else None
        self.member_id = ""
        self.generation = -1
        self.leads: list[str] = []


class GroupModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.clients = [Client(place) for place in range(5)]
        #: Which clients wait, and since when.
        self.joining: dict[int, tuple[Client, int]] = {}
        self.syncing: dict[int, tuple[Client, int, int]] = {}
        #: By generation: the leader, and the assignment of each member (static members by their names).
        self.leaders: dict[int, str] = {}
        self.given: dict[int, dict[str, bytes]] = {}
        self.generation = 0
        self.salt = 0

    # -- what happens --------------------------------------------------------------------------------------------------

    @rule(place=PLACES, trip=st.booleans(), protocols=PROTOCOLS, session=st.sampled_from([3_000, 15_000, 50_000]))
    def join(self, place: int, trip: bool, protocols: Any, session: int) -> None:
        client = self.clients[place]
        token = self.bench.join(
            client.member_id,
            round_trip=trip,
            protocols=protocols,
            session_ms=session,
            rebalance_ms=REBALANCE_MS,
            instance_id=client.instance_id,
        )
        self.joining[token] = (client, self.bench.now)
        self.listen()

    @rule(place=PLACES, stale=st.booleans())
    def sync(self, place: int, stale: bool) -> None:
        client = self.clients[place]
        self.salt += 1
        assignments = {member_id: f"{self.salt}/{member_id}".encode() for member_id in client.leads}
        generation = client.generation - stale
        token = self.bench.sync(client.member_id, generation, assignments, client.instance_id)
        self.syncing[token] = (client, self.bench.now, generation)
        self.listen()

    @rule(place=PLACES)
    def heartbeat(self, place: int) -> None:
        client = self.clients[place]
        self.obey(client, self.bench.heartbeat(client.member_id, client.generation, client.instance_id))

    @rule(place=PLACES)
    def commit(self, place: int) -> None:
        client, group = self.clients[place], self.bench.group
        error = group.commit(client.member_id, client.generation, client.instance_id, self.bench.now)
        if error is ErrorCode.NONE and client.generation >= 0:
            assert client.generation == self.generation
        self.obey(client, error)

    @rule(place=PLACES)
    def leave(self, place: int) -> None:
        client = self.clients[place]
        self.bench.leave(client.member_id, client.instance_id)
        self.forget(client)
        self.listen()

    @rule(place=PLACES)
    def start_again(self, place: int) -> None:
        """The process of the client: everything that waited for it hangs up, and its state is lost."""
        client = self.clients[place]
        for waits in (self.joining, self.syncing):
            for token in [token for token, waiting in waits.items() if waiting[0] is client]:
                del waits[token]
                self.bench.group.disconnected(token, self.bench.now)
        self.forget(client)

    @rule(ms=st.sampled_from([0, 1, 50, 100, 2_000, 5_000, REBALANCE_MS]))
    def time_passes(self, ms: int) -> None:
        self.bench.pass_ms(ms)
        self.listen()

    @rule()
    def disband(self) -> None:
        self.bench.group.disband(ErrorCode.NOT_COORDINATOR)
        self.bench.take()
        self.listen()
        assert not self.joining
        assert not self.syncing

    # -- what the clients make of it -----------------------------------------------------------------------------------

    @staticmethod
    def forget(client: Client) -> None:
        client.member_id, client.generation, client.leads = "", -1, []

    def obey(self, client: Client, error: ErrorCode) -> None:
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.forget(client)

    def listen(self) -> None:
        for token in [token for token in self.joining if token in self.bench.joined]:
            (client, _), answer = self.joining.pop(token), self.bench.joined[token]
            if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = answer.member_id
            elif answer.error is not ErrorCode.NONE:
                self.obey(client, answer.error)
            else:
                client.member_id, client.generation = answer.member_id, answer.generation
                client.leads = [each.member_id for each in answer.members]
                self.joined(client)
        for token in [token for token in self.syncing if token in self.bench.synced]:
            (client, _, generation), answer = self.syncing.pop(token), self.bench.synced[token]
            if answer.error is ErrorCode.NONE:
                self.assigned(client, generation, answer.assignment)
            self.obey(client, answer.error)

    def joined(self, client: Client) -> None:
        if client.leads:
            assert self.leaders.setdefault(client.generation, client.member_id) == client.member_id
            assert client.member_id in client.leads

    def assigned(self, client: Client, generation: int, assignment: bytes) -> None:
        who = client.instance_id or client.member_id
        given = self.given.setdefault(generation, {})
        assert given.setdefault(who, assignment) == assignment
        salts = {each.split(b"/")[0] for each in given.values() if each}
        assert len(salts) <= 1, "one generation, one assignment"

    # -- what always holds ---------------------------------------------------------------------------------------------

    @invariant()
    def generations_only_grow(self) -> None:
        assert self.bench.group.generation >= self.generation
        self.generation = self.bench.group.generation
        assert [each.generation for each in self.bench.saved] == list(range(1, self.generation + 1))

    @invariant()
    def nobody_waits_for_ever(self) -> None:
        oldest = self.bench.now - REBALANCE_MS
        assert all(since >= oldest for _, since in self.joining.values())
        assert all(since >= oldest for _, since, _ in self.syncing.values())
        deadline = self.bench.group.deadline()
        assert deadline is None or deadline > self.bench.now

    @invariant()
    def a_barrier_ends(self) -> None:
        group, members = self.bench.group, self.bench.group.roster.members.values()
        if group.state in (State.PREPARING, State.COMPLETING):
            assert group.deadline() is not None
        else:
            assert not any(each.sync for each in members)
        if group.state is not State.PREPARING:
            assert not any(each.join for each in members)
        assert (group.state is State.EMPTY) <= (not members)
        assert len(members) + len(group.roster.pending) <= 5


TestGroupModel = GroupModel.TestCase
