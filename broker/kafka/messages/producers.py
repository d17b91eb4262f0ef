"""Ids of idempotent producers."""

from __future__ import annotations

from typing import Annotated

from broker.kafka.codec import Int16, Int32, Int64, Message, NullableString, Since, flexible


@flexible(2)
class InitProducerIdRequest(Message):
    transactional_id: NullableString = None
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, Since(3)] = -1
    producer_epoch: Annotated[Int16, Since(3)] = -1


@flexible(2)
class InitProducerIdResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
