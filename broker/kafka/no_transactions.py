"""Tells clients that there are no transactions, when they ask for the coordinator of one.

No single code suits all clients. librdkafka gives up at once only on an authorization code, and shows our sentence with
it; it retries other codes until its own timeout, which may be never. Java's client shows the sentence with any code but
that one; kafka-python and aiokafka show the name of the code. So librdkafka gets a different code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from broker.kafka.call import Call

#: FindCoordinator's key type for transactional ids.
TRANSACTION: Final = 1
SENTENCE: Final = (
    "This broker has no transactions: leave transactional.id out. Producers are idempotent with enable.idempotence."
)
#: Part of the software name that librdkafka, and clients built on it, send.
_RDKAFKA: Final = "rdkafka"


def refusal(call: Call) -> ErrorCode:
    """The code for a transactional id."""
    if _RDKAFKA in call.connection.software:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.UNSUPPORTED_VERSION
