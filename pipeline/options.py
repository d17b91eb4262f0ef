"""Parses the options of a read from Spark's strings. Names are case-insensitive, as in Spark. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from pipeline.errors import BadOption

#: As in Kafka's source. Offsets count from 0, seqs from 1.
EARLIEST, LATEST = -2, -1
Bound = str | dict[str, dict[int, int]]

_URLS = ("url", "kafka.bootstrap.servers")
_NAMES = ("topic", "topics", "subscribe", "topicspattern", "subscribepattern", "assign")
_KNOWN = {
    *_URLS,
    *_NAMES,
    "token",
    "path",
    "coldpath",
    "startingoffsets",
    "endingoffsets",
    "startingtimestamp",
    "endingtimestamp",
    "failondataloss",
    "maxoffsetspertrigger",
    "minpartitions",
    "fetchconcurrency",
    "includeheaders",
    "valueschema",
}
#: Options of Kafka's source that have no meaning here and do not affect the result.
_IGNORED = re.compile(r"kafka\.|groupidprefix$|fetchoffset\.|kafkaconsumer\.|__")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The source, the topics and the range of a read. Either `url` or `path` is set."""

    url: str = ""
    token: str | None = None
    path: str = ""
    cold_path: str = ""
    topics: tuple[str, ...] = ()
    #: The partitions to read, by topic. Topics that are missing here: all partitions.
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    pattern: str | None = None
    starting: Bound | None = None
    ending: Bound | None = None
    starting_ts: int | None = None
    ending_ts: int | None = None
    fail_on_loss: bool = True
    max_records: int | None = None
    min_partitions: int = 1
    fetch_concurrency: int = 2
    headers: bool = False
    value_schema: str = ""


def parse(options: Mapping[str, str]) -> ReadOptions:
    """Parse options. Raises BadOption, which names the option and its valid values."""
    given = {name.lower(): str(value) for name, value in options.items()}
    for name in given:
        if name not in _KNOWN and not _IGNORED.match(name):
            raise BadOption(f"Option {name} does not exist. docs/guides/spark.md lists all options.")
    url = _one_of(given, _URLS)
    path = given.get("path", "")
    if bool(url) == bool(path):
        raise BadOption("Set either url (or kafka.bootstrap.servers), or path.")
    topics, pattern = _wanted(given)
    assigned = _assigned(given["assign"]) if given.get("assign") else {}
    starting, ending = (_bound(given.get(name), name) for name in ("startingoffsets", "endingoffsets"))
    starting_ts, ending_ts = (_whole(given, name, 0) for name in ("startingtimestamp", "endingtimestamp"))
    if starting is not None and starting_ts is not None:
        raise BadOption("startingOffsets and startingTimestamp exclude each other.")
    if ending is not None and ending_ts is not None:
        raise BadOption("endingOffsets and endingTimestamp exclude each other.")
    return ReadOptions(
        url=url.split(",")[0].strip(),
        token=given.get("token"),
        path=path,
        cold_path=given.get("coldpath", ""),
        topics=topics,
        assigned=assigned,
        pattern=pattern,
        starting=starting,
        ending=ending,
        starting_ts=starting_ts,
        ending_ts=ending_ts,
        fail_on_loss=_flag(given, "failondataloss", True),
        max_records=_whole(given, "maxoffsetspertrigger", 1),
        min_partitions=_whole(given, "minpartitions", 1) or 1,
        fetch_concurrency=_whole(given, "fetchconcurrency", 1) or 2,
        headers=_flag(given, "includeheaders", False),
        value_schema=given.get("valueschema", ""),
    )


def _one_of(given: Mapping[str, str], names: tuple[str, ...]) -> str:
    found = [given[name] for name in names if given.get(name)]
    if len(found) > 1:
        raise BadOption(f"Only one of {', '.join(names)} can be set.")
    return found[0] if found else ""


def _wanted(given: Mapping[str, str]) -> tuple[tuple[str, ...], str | None]:
    found = [name for name in _NAMES if given.get(name)]
    if len(found) != 1:
        raise BadOption("Set exactly one of topic, topics, topicsPattern, subscribe, subscribePattern, assign.")
    text = given[found[0]]
    if found[0].endswith("pattern"):
        try:
            re.compile(text)
        except re.error as error:
            raise BadOption(f"{found[0]} is not a regular expression: {error}.") from error
        return (), text
    if found[0] == "assign":
        return tuple(sorted(_assigned(text))), None
    names = (text,) if found[0] == "topic" else tuple(name.strip() for name in text.split(",") if name.strip())
    return tuple(sorted(set(names))), None


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    example = '{"orders": [0, 1]}'
    found = _json(text, "assign", example)
    for topic, partitions in found.items():
        numbers = cast("list[Any]", partitions) if isinstance(partitions, list) else []
        if not numbers or any(type(each) is not int or each < 0 for each in numbers):
            raise BadOption(f"assign must be JSON like {example}: partitions of {topic} must be numbers, 0 or more.")
    if not found:
        raise BadOption(f"assign names no topic; it must be JSON like {example}.")
    return {topic: tuple(sorted(set(cast("list[int]", each)))) for topic, each in found.items()}


def _bound(text: str | None, name: str) -> Bound | None:
    if text is None or text.lower() in ("earliest", "latest"):
        return None if text is None else text.lower()
    found = _json(text, name, '{"orders": {"0": 17}}, earliest or latest')
    try:
        return {topic: {int(key): int(offset) for key, offset in each.items()} for topic, each in found.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise BadOption(f'{name} must be earliest, latest, or JSON like {{"orders": {{"0": 17}}}}.') from error


def _json(text: str, name: str, example: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise BadOption(f"{name} must be JSON like {example}: {error}.") from error


def _whole(given: Mapping[str, str], name: str, least: int) -> int | None:
    if name not in given:
        return None
    if not given[name].strip().isdecimal() or int(given[name]) < least:
        raise BadOption(f"{name} must be an integer, {least} or more, not {given[name]!r}.")
    return int(given[name])


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise BadOption(f"{name} must be true or false, not {given[name]!r}.")
    return text == "true"


def check_named(bound: Bound | None, name: str, topic: str, partitions: Sequence[int]) -> None:
    """Raises BadOption if offsets in JSON do not name exactly these partitions of a topic."""
    if not isinstance(bound, dict):
        return
    named = bound.get(topic, {})
    missing = [each for each in partitions if each not in named]
    if missing:
        raise BadOption(
            f"{name} does not name partition {', '.join(map(str, missing))} of topic {topic}: name all that are read, "
            "with -1 for latest and -2 for earliest."
        )
    if strange := sorted(set(named) - set(partitions)):
        raise BadOption(f"{name} names partition {strange[0]} of topic {topic}, which is not read or does not exist.")


def first_seq(bound: Bound | None, topic: str, partition: int, default: str) -> int:
    """The seq in a bound for a partition: EARLIEST, LATEST, or 1 and above (offset 0 is seq 1).

    Raises BadOption if a bound in JSON does not name the partition.
    """
    chosen = default if bound is None else bound
    if isinstance(chosen, str):
        return EARLIEST if chosen == "earliest" else LATEST
    if partition not in chosen.get(topic, {}):
        raise BadOption(f"The offsets do not name partition {partition} of topic {topic}.")
    offset = chosen[topic][partition]
    if offset < EARLIEST:
        raise BadOption(f"{offset} is not an offset (topic {topic}): use 0 or more, -1 for latest, -2 for earliest.")
    return offset if offset < 0 else offset + 1
