"""The messages of share groups, byte by byte as in KIP-932, KIP-1206 and KIP-1222."""

from __future__ import annotations

import struct

import pytest

from broker.kafka.codec.schema import Message, decode, encode
from broker.kafka.messages.share import (
    AcknowledgementBatch,
    AcquiredRecords,
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopicResponse,
    ShareForgottenTopic,
    ShareGroupHeartbeatAssignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareGroupHeartbeatTopicPartitions,
    SharePartition,
    ShareTopic,
)

UUID = bytes(range(16))
SAID = [
    ShareTopic(
        topic_id=UUID,
        partitions=[
            SharePartition(
                partition_index=0,
                acknowledgement_batches=[AcknowledgementBatch(first_offset=1, last_offset=2, acknowledge_types=[1, 3])],
            )
        ],
    )
]
#: One topic, one partition, one batch, two types, and tagged fields at every level.
SAID_BYTES = (
    b"\x02" + UUID + b"\x02" + struct.pack(">i", 0) + b"\x02" + struct.pack(">qq", 1, 2) + b"\x03\x01\x03" + b"\0" * 3
)
NO_LEADER = struct.pack(">ii", -1, -1) + b"\0"
HEAD = b"\x02g\x02m" + struct.pack(">i", 5)
FETCH = struct.pack(">iiiii", 500, 1, 1000, 10, 20)
CASES: list[tuple[Message, int, bytes]] = [
    (
        ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=5, subscribed_topic_names=["q"]),
        1,
        HEAD + b"\0" + b"\x02\x02q" + b"\0",
    ),
    (ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=5), 1, HEAD + b"\0" + b"\0" + b"\0"),
    (
        ShareGroupHeartbeatResponse(
            member_id="m",
            member_epoch=5,
            heartbeat_interval_ms=9,
            assignment=ShareGroupHeartbeatAssignment(
                topic_partitions=[ShareGroupHeartbeatTopicPartitions(topic_id=UUID, partitions=[0])]
            ),
        ),
        1,
        struct.pack(">ih", 0, 0) + b"\0\x02m" + struct.pack(">ii", 5, 9) + b"\x01\x02" + UUID + b"\x02\0\0\0\0\0\0\0",
    ),
    (
        ShareGroupHeartbeatResponse(error_code=25),
        1,
        struct.pack(">ih", 0, 25) + b"\0\0" + struct.pack(">ii", 0, 0) + b"\xff\0",
    ),
    (
        ShareFetchRequest(
            group_id="g",
            member_id="m",
            share_session_epoch=5,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1000,
            max_records=10,
            batch_size=20,
            topics=SAID,
            forgotten_topics_data=[ShareForgottenTopic(topic_id=UUID, partitions=[0])],
        ),
        1,
        HEAD + FETCH + SAID_BYTES + b"\x02" + UUID + b"\x02\0\0\0\0\0\0",
    ),
    (
        ShareFetchRequest(
            group_id="g",
            member_id="m",
            share_session_epoch=5,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1000,
            max_records=10,
            batch_size=20,
            share_acquire_mode=1,
            is_renew_ack=True,
        ),
        2,
        HEAD + FETCH + b"\x01\x01" + b"\x01\x01\0",
    ),
    (
        ShareFetchResponse(
            acquisition_lock_timeout_ms=7,
            responses=[
                ShareFetchTopicResponse(
                    topic_id=UUID,
                    partitions=[
                        ShareFetchPartition(
                            error_code=1,
                            error_message="e",
                            acknowledge_error_code=2,
                            records=b"rec",
                            acquired_records=[AcquiredRecords(first_offset=3, last_offset=4, delivery_count=5)],
                        )
                    ],
                )
            ],
        ),
        1,
        struct.pack(">ih", 0, 0) + b"\0" + struct.pack(">i", 7) + b"\x02" + UUID + b"\x02"
        + struct.pack(">ih", 0, 1) + b"\x02e" + struct.pack(">h", 2) + b"\0" + NO_LEADER + b"\x04rec"
        + b"\x02" + struct.pack(">qqh", 3, 4, 5) + b"\0" + b"\0\0" + b"\x01\0",
    ),
    (
        ShareAcknowledgeRequest(group_id="g", member_id="m", share_session_epoch=5, topics=SAID),
        1,
        HEAD + SAID_BYTES + b"\0",
    ),
    (
        ShareAcknowledgeRequest(group_id="g", member_id="m", share_session_epoch=5, is_renew_ack=True, topics=SAID),
        2,
        HEAD + b"\x01" + SAID_BYTES + b"\0",
    ),
    *(
        (
            ShareAcknowledgeResponse(
                acquisition_lock_timeout_ms=lock_ms,
                responses=[
                    ShareAcknowledgeTopicResponse(
                        topic_id=UUID, partitions=[ShareAcknowledgePartition(error_code=121, error_message="e")]
                    )
                ],
            ),
            version,
            struct.pack(">ih", 0, 0) + b"\0" + lock + b"\x02" + UUID + b"\x02"
            + struct.pack(">ih", 0, 121) + b"\x02e" + NO_LEADER + b"\0\0" + b"\x01\0",
        )
        for version, lock_ms, lock in ((1, 0, b""), (2, 7, struct.pack(">i", 7)))
    ),
]  # fmt: skip


@pytest.mark.parametrize(("message", "version", "written"), CASES)
def test_messages_have_the_layout_of_the_kips(message: Message, version: int, written: bytes) -> None:
    assert encode(message, version) == written
    assert decode(type(message), version, written) == message
