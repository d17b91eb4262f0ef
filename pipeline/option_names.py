"""Refuses options and columns that the source does not have, and says what to write instead. Pure.

An option that has no effect would go unnoticed: a query would read other records, or read them with other rights, than
its author believes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from urllib.parse import urlsplit

from pipeline.errors import BadOption
from topics_client import TopicsError
from topics_client.address import base_url

_SERVERS = "kafka.bootstrap.servers"
_KAFKAS_PORT = 9092
_BARE = re.compile(r"[\w.-]+(:[0-9]+)?/?")
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
        if not _BARE.fullmatch(address) or address.endswith(f":{_KAFKAS_PORT}") or name == _SERVERS:
            raise BadOption(
                f"{name} is {address!r}, which is not a URL of HTTP. This source does not use the Kafka protocol: "
                "write url=http://host:4000 (or https://…), the broker's HTTP address, not that of its Kafka port."
            )
        raise BadOption(
            f"{name} is {address!r}, without http:// in front: write url=http://{address} (or https://…), the broker's "
            "HTTP address, not that of its Kafka port."
        )
    return checked_url(name, address)


def checked_url(option: str, address: str) -> str:
    """The URL of a broker without spaces around it. A bare host:port is one, too.

    Raises BadOption for what cannot be one. It does not repeat a password.
    """
    text = address.strip()
    quoted = text.rpartition("@")[2]
    try:
        base = base_url(text)
        parts = urlsplit(base)
    except (TopicsError, ValueError):
        raise BadOption(
            f"{option} is {quoted!r}, which is not the URL of a broker: write {option}=http://host:4000, its HTTP "
            "address (not that of the Kafka port)."
        ) from None
    if parts.query or parts.fragment or text.endswith(("?", "#")):
        raise BadOption(
            f"{option} is {quoted!r}, and a broker's URL has no ? and no #: write {option}=http://host:4000."
        )
    return text
