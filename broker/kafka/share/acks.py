"""Matches the acknowledgements of a member with its leases. Pure.

type         meaning here
0 gap        no record was at this offset: nothing, or nack if the member holds one
1 accept     ack
2 release    nack
3 reject     dead letter
4 renew      extend

Source: docs/guides/kafka.md#share-groups.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from broker.kafka.messages.share import AcknowledgementBatch


class AckType(enum.IntEnum):
    """The numbers of the protocol."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


#: From this version of the requests on, a lease can be renewed.
RENEW_SINCE: Final = 2


class InvalidBatches(Exception):
    """The batches of acknowledgements are malformed; the message says why."""


class Plan(NamedTuple):
    """The seqs for each type. `unknown`: the member does not hold some acknowledged offsets."""

    seqs: dict[AckType, list[int]]
    unknown: bool


def plan(batches: Sequence[AcknowledgementBatch], held: Mapping[int, int], version: int) -> Plan:
    """Plan the effect of these batches. `held`: lease ids by seq. Raises InvalidBatches; then nothing must be applied.

    The cost depends on the bytes that were sent and on the leases, not on the size of the ranges.
    """
    check(batches, version)
    seqs: dict[AckType, list[int]] = {}
    unknown = False
    for batch in batches:
        first, last, types = batch.first_offset + 1, batch.last_offset + 1, batch.acknowledge_types
        count = last - first + 1
        if len(types) == count:
            given = [(seq, AckType(type_)) for seq, type_ in zip(range(first, last + 1), types, strict=True)]
            missing = any(type_ is not AckType.GAP and seq not in held for seq, type_ in given)
            found = [each for each in given if each[0] in held]
        else:
            ack_type = AckType(types[0])
            known = range(first, last + 1) if count <= len(held) else sorted(held)
            found = [(seq, ack_type) for seq in known if first <= seq <= last and seq in held]
            missing = ack_type is not AckType.GAP and len(found) < count
        unknown = unknown or missing
        for seq, type_ in found:
            seqs.setdefault(AckType.RELEASE if type_ is AckType.GAP else type_, []).append(seq)
    return Plan(seqs, unknown)


def check(batches: Sequence[AcknowledgementBatch], version: int) -> None:
    """Raises InvalidBatches."""
    behind = -1
    highest = AckType.RENEW if version >= RENEW_SINCE else AckType.REJECT
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if not behind < first <= last:
            raise InvalidBatches(f"Offsets {first} to {last} are not after those of the previous batch.")
        if len(types) not in (1, last - first + 1):
            raise InvalidBatches(
                f"Offsets {first} to {last} have {len(types)} types; send one for all or one for each."
            )
        if not 0 <= min(types) <= max(types) <= highest:
            raise InvalidBatches(f"Version {version} has no acknowledge type {max(types)}.")
        behind = last
