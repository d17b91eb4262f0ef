"""Refuses options and columns that the source does not have, and says what to write instead. Pure.

An option that has no effect would go unnoticed: a query would read other records, or read them with other rights, than
its author believes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from pipeline.errors import BadOption

_SERVERS = "kafka.bootstrap.servers"
_HTTP = re.compile(r"https?://", re.IGNORECASE)
#: Options of Kafka's connector, and what to write instead. The first that matches counts.
_OF_KAFKA = [
    (r"kafka\.(security|sasl)\..*", "It secures the Kafka protocol. Write url with https://, and token with the key."),
    (r"kafka\.ssl\..*", "It secures the Kafka protocol. Write url with https://."),
    (r"kafka\.group\.id|groupidprefix", "This source has no consumer group. Remove the option."),
    (r"kafka\.(enable\.idempotence|acks|retries|transactional\.id)", "Every row is stored once anyway. Remove it."),
    (r"(kafka|fetchoffset|kafkaconsumer)\..*", "It configures Kafka's client, which is not used here. Remove it."),
]


def check_names(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raises BadOption for the first name (in lower case) that is not in `known`. `what`: read or write."""
    spelled = {each.lower(): each for each in known}
    for name in given:
        # Spark itself adds options that begin with two underscores.
        if name in spelled or name == _SERVERS or name.startswith("__"):
            continue
        for pattern, advice in _OF_KAFKA:
            if re.fullmatch(pattern, name):
                raise BadOption(f"Option {name} belongs to Spark's connector for Kafka. {advice}")
        raise BadOption(
            f"Option {name} does not exist for a {what}.{nearest(name, spelled)} "
            "docs/guides/spark.md lists all options."
        )


def nearest(name: str, known: Mapping[str, str]) -> str:
    """` Did you mean …?`, or nothing. `known`: names as they are written, by lower-case name."""
    found = get_close_matches(name.lower(), known, n=1)
    return f" Did you mean {known[found[0]]}?" if found else ""


def shown(name: str, known: Iterable[str]) -> str:
    """The name as it is written, from the name in lower case."""
    return next((each for each in known if each.lower() == name), name)


def address_of(given: Mapping[str, str]) -> str:
    """The broker's URL from `url` or `kafka.bootstrap.servers`; "": neither is given.

    An address of the Kafka port never answers HTTP, so it is refused at once. Raises BadOption.
    """
    found = [(name, given[name].split(",")[0].strip()) for name in ("url", _SERVERS) if given.get(name)]
    if len(found) > 1:
        raise BadOption(f"Set only one of url and {_SERVERS}.")
    if not found:
        return ""
    name, address = found[0]
    if not _HTTP.match(address):
        raise BadOption(
            f"{name} is {address!r}, which is not a URL. This source does not use the Kafka protocol: write "
            "url=http://host:4000 (or https://…), the broker's HTTP address, not that of its Kafka port."
        )
    return address
