"""InitProducerId: ids of idempotent producers. There are no transactions.

Source: docs/guides/kafka.md#producing-and-consuming.
"""

from __future__ import annotations

from typing import Final

from broker.auth import WRITE
from broker.kafka import cluster, no_transactions
from broker.kafka.apis import ApiKey
from broker.kafka.call import Call, Handler, decoded
from broker.kafka.errors import ErrorCode, code_of
from broker.kafka.messages.session import InitProducerIdRequest, InitProducerIdResponse

_NOBODY: Final = -1


async def init_producer_id(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Assign a producer id, or from version 3 on the next epoch of an id.

    A transactional id is refused, as by FindCoordinator.
    """
    if request.transactional_id is not None:
        return _refused(no_transactions.refusal(call))
    if not cluster.may(call.access, WRITE):
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    producers = call.broker.engine.producers
    try:
        if request.producer_id == _NOBODY:
            producer_id, epoch = await producers.claim()
        else:
            producer_id, epoch = await producers.bump(request.producer_id, request.producer_epoch)
    except Exception as error:
        return _refused(code_of(error, unavailable=ErrorCode.COORDINATOR_NOT_AVAILABLE))
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=_NOBODY, producer_epoch=_NOBODY)


HANDLERS: Final[dict[int, Handler]] = {ApiKey.INIT_PRODUCER_ID: decoded(InitProducerIdRequest, init_producer_id)}
