"""How clients are told that there are no transactions: in the answer to whom they ask for the coordinator of one.

No code says so to all clients. librdkafka gives up at once on an authorization code only, and shows our sentence with
it; others it retries until its own timeout, which may be never. Java's client shows the sentence with any code but that
one; kafka-python and aiokafka show the name of the code. So librdkafka gets another code than the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from broker.kafka.call import Call

#: Of key types of FindCoordinator: transactional ids.
TRANSACTION: Final = 1
SENTENCE: Final = (
    "This broker has no transactions: leave transactional.id out. Producers are idempotent with enable.idempotence."
)
#: In the version that librdkafka and what is built on it give.
_RDKAFKA: Final = "rdkafka"


def refusal(call: Call) -> ErrorCode:
    """The code for a transactional id."""
    if _RDKAFKA in call.connection.software:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.UNSUPPORTED_VERSION
