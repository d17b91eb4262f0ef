"""The error for clients that look for a transaction coordinator: the broker has no transactions.

No single code suits all clients. librdkafka gives up at once, and shows the message, only for an authorization code; it
retries other codes until its own timeout, which may be infinite. Java's client shows the message for all other codes;
kafka-python and aiokafka show the name of the code. So librdkafka gets a code of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from broker.kafka.call import Call

#: FindCoordinator's key type for transactional ids.
TRANSACTION: Final = 1
MESSAGE: Final = (
    "This broker has no transactions: do not set transactional.id. For idempotent producers, set enable.idempotence."
)
#: Part of the software name that librdkafka, and clients built on it, send.
_RDKAFKA: Final = "rdkafka"


def refusal(call: Call) -> ErrorCode:
    """The code for a transactional id."""
    if _RDKAFKA in call.connection.software:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.UNSUPPORTED_VERSION
