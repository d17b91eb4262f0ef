"""The brokers that this client was made for. No I/O."""

from __future__ import annotations

import re

from topics_client.errors import BrokerTooOld, UnexpectedAnswer
from topics_client.values import Health

#: The first broker that understands every call of this client. Raise it with the first call that needs a newer one.
LOWEST_BROKER = "0.1.0"
_RELEASE = re.compile(r"\d+(?:\.\d+)*")


def checked(health: Health, lowest: str = LOWEST_BROKER) -> Health:
    """The answer of a broker that is new enough. Text after the numbers of a version is ignored.

    Raises BrokerTooOld, and UnexpectedAnswer for text that is not a version.
    """
    if _numbers(health.version) < _numbers(lowest):
        raise BrokerTooOld(version=health.version, lowest=lowest)
    return health


def _numbers(version: str) -> list[int]:
    found = _RELEASE.match(version)
    if found is None:
        raise UnexpectedAnswer(f"The broker says that its version is {version!r}, which is not a version.")
    numbers = [int(number) for number in found[0].split(".")]
    while numbers and numbers[-1] == 0:  # 1.0 is 1
        numbers.pop()
    return numbers
