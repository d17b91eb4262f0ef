"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of real members, then changed.

Each is answered, waits for other members, or ends its connection as malformed. The groups continue.
"""

from __future__ import annotations

import asyncio
import os
import random
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.kafka.apis import APIS, ApiKey
from broker.kafka.codec.schema import Message, decode, encode
from broker.kafka.codec.wire import Malformed
from broker.kafka.errors import ErrorCode
from broker.kafka.groups.states import State
from broker.kafka.messages import groups as m
from tests.conftest import is_soak
from tests.kafka.groups.test_calls import stable
from tests.kafka.server import PATIENCE_S, KafkaServer, Wire
from tests.kafka.test_fuzz import refusals, still_served
from tests.unit.kafka.random_messages import filled

ROUNDS = 8000 if is_soak(os.environ) else 400
GROUPS = ("g", "h", "ключ", "", "x" * 600)
INSTANCES = (None, None, "one", "two")
KINDS: dict[ApiKey, tuple[type[Message], type[Message]]] = {
    ApiKey.JOIN_GROUP: (m.JoinGroupRequest, m.JoinGroupResponse),
    ApiKey.SYNC_GROUP: (m.SyncGroupRequest, m.SyncGroupResponse),
    ApiKey.HEARTBEAT: (m.HeartbeatRequest, m.HeartbeatResponse),
    ApiKey.LEAVE_GROUP: (m.LeaveGroupRequest, m.LeaveGroupResponse),
}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[KafkaServer]:
    async with KafkaServer(tmp_path, kafka_rebalance_delay_ms=0, kafka_min_session_ms=20) as server:
        yield server


class GroupRequests:
    """Group requests as clients send them, with ids from the broker's answers, and mutations of these requests."""

    def __init__(self, server: KafkaServer, dice: random.Random) -> None:
        self.server, self.dice = server, dice
        self.given = [""]

    def known(self) -> tuple[str, str, int, str | None]:
        """Group, member, generation and instance id of a member, usually an existing one."""
        group = self.dice.choice(GROUPS if self.dice.random() < 0.2 else GROUPS[:2])
        found = self.server.broker.kafka_groups.describe(group)
        if not found.members or self.dice.random() < 0.2:
            return group, self.dice.choice(self.given), found.generation, self.dice.choice(INSTANCES)
        one = self.dice.choice(found.members)
        return group, one.member_id, found.generation, one.instance_id

    def request(self, key: ApiKey) -> Message:
        dice = self.dice
        group, member_id, generation, instance_id = self.known()
        generation += dice.choice((0, 0, 0, 0, -1, 1))
        ids: dict[str, Any] = {"group_id": group, "member_id": member_id, "group_instance_id": instance_id}
        if key is ApiKey.HEARTBEAT:
            return m.HeartbeatRequest(**ids, generation_id=generation)
        if key is ApiKey.LEAVE_GROUP:
            gone = m.LeaveGroupMemberIdentity(member_id=dice.choice((member_id, "")), group_instance_id=instance_id)
            return m.LeaveGroupRequest(group_id=group, member_id=member_id, members=[gone] * dice.choice((0, 1, 2)))
        if key is ApiKey.SYNC_GROUP:
            given = [m.SyncGroupRequestAssignment(member_id=each, assignment=b"all") for each in (member_id, "who")]
            return m.SyncGroupRequest(**ids, generation_id=generation, assignments=given[: dice.choice((0, 1, 2))])
        named = dice.choices(("range", "sticky", ""), k=dice.choice((0, 1, 1, 2, 3)))
        return m.JoinGroupRequest(
            **(ids if dice.random() < 0.5 else {"group_id": group, "group_instance_id": dice.choice(INSTANCES)}),
            session_timeout_ms=dice.choice((20, 100, 500, 30_000, 0)),
            rebalance_timeout_ms=dice.choice((-1, 0, 20, 100)),
            protocol_type=dice.choice(("consumer", "consumer", "consumer", "connect", "")),
            protocols=[m.JoinGroupRequestProtocol(name=name, metadata=dice.randbytes(5)) for name in named],
        )

    def changed(self, body: bytes) -> bytes:
        """Half of them stay unchanged. In the others bytes are different, missing at the end, or added."""
        made, dice = bytearray(body), self.dice
        if dice.random() < 0.5:
            return body
        for _ in range(dice.randint(1, 3)):
            made[dice.randrange(len(made))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        return (
            bytes(made[: dice.randint(0, len(made))])
            if dice.random() < 0.3
            else bytes(made) + bytes(dice.choice((0, 3)))
        )

    async def outcome(self, key: ApiKey, version: int, body: bytes) -> Message | None:
        """The answer. None: the request waits for other members and its client hangs up, or it was malformed."""
        asked, answered = KINDS[key]
        server, wire = self.server, await self.server.connect()
        refused, held = refusals(server), waiting(server)
        wire.send(key, version, body)
        answer = asyncio.ensure_future(wire.answer())
        async with asyncio.timeout(PATIENCE_S):
            while not answer.done() and not waiting(server) - held:
                await asyncio.sleep(0)
        if not answer.done():
            answer.cancel()
            await asyncio.gather(answer, return_exceptions=True)
            await self.hang_up(wire)
            return None
        try:
            _, said = answer.result()
        except (EOFError, ConnectionResetError):
            assert refusals(server) == refused + 1, f"{key.name} v{version} {body!r} ended in a defect"
            with pytest.raises(Malformed):
                decode(asked, version, body)
            return None
        await self.hang_up(wire)
        return decode(answered, version, said, 1 if version >= APIS[key].flexible_since else 0)

    async def hang_up(self, wire: Wire) -> None:
        """On return the broker knows that."""
        await wire.close()
        async with asyncio.timeout(PATIENCE_S):
            while self.server.port.metrics.connections:
                await asyncio.sleep(0)


def waiting(server: KafkaServer) -> frozenset[Any]:
    """The joins and syncs that wait."""
    groups = server.broker.kafka_groups
    members = [each for group in groups.all_groups() for each in group.members]
    return frozenset(token for each in members for token in (each.join, each.sync) if token is not None)


async def test_requests_of_members_with_changed_bytes(server: KafkaServer) -> None:
    dice = random.Random(random.getrandbits(32))
    talk = GroupRequests(server, dice)
    seen: set[tuple[ApiKey, int]] = set()
    # The run has covered a lot: groups have formed, had members, and refused them.
    wanted = {(key, 0) for key in KINDS} | {(key, ErrorCode.UNKNOWN_MEMBER_ID) for key in KINDS}
    held = rounds = 0
    with capture_logs() as logs:
        while rounds < ROUNDS or (rounds < 20 * ROUNDS and not (held and seen >= wanted)):
            rounds += 1
            key = dice.choice((ApiKey.JOIN_GROUP, *KINDS))
            version = dice.randint(APIS[key].first, APIS[key].last)
            answer: Any = await talk.outcome(key, version, talk.changed(encode(talk.request(key), version)))
            held += answer is None
            if answer is not None:
                seen.add((key, answer.error_code))
                assert answer.error_code in iter(ErrorCode)
                talk.given = [*talk.given[-20:], getattr(answer, "member_id", "")]
    assert {each["event"] for each in logs} & {
        "kafka_request_failed",
        "kafka_group_failed",
        "kafka_call_failed",
    } == set()
    assert seen >= wanted
    assert held
    await still_served(server)
    await a_group_forms(server)


async def a_group_forms(server: KafkaServer) -> None:
    await stable(await server.connect(), "anew")
    assert server.broker.kafka_groups.describe("anew").state is State.STABLE


@pytest.mark.parametrize("key", KINDS)
def test_announced_length_allocates_no_memory(key: ApiKey) -> None:
    """Each byte in turn claims the largest possible length. No more memory is allocated than bytes exist."""
    dice = random.Random(random.getrandbits(32))
    kind, _ = KINDS[key]
    for version in range(APIS[key].first, APIS[key].last + 1):
        body = encode(filled(kind, version, dice.randrange(1 << 30)), version)
        decode(kind, version, body)  # what is created once stays
        for place in range(len(body)):
            changed = body[:place] + b"\x7f\xff\xff\xff\x07"[: dice.choice((1, 2, 4, 5))] + body[place + 1 :]
            tracemalloc.start()
            try:
                decode(kind, version, changed)
            except Malformed:
                pass
            finally:
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
            assert peak < 20_000 + 200 * len(changed), (version, place, peak)
