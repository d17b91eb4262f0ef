"""Parses the options of a read from Spark's strings. Names are case-insensitive, as in Spark. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec

from pipeline.batches import Shape
from pipeline.errors import BadOption
from pipeline.option_names import address_of, check_names, nearest, shown
from pipeline.schema import arrow_schema
from pipeline.values import CORRUPT, PERMISSIVE, ValueShape, value_shape
from topics_client.column_types import quoted

#: As in Kafka's source. Offsets count from 0, seqs from 1.
EARLIEST, LATEST = -2, -1
Bound = str | dict[str, dict[int, int]]
#: ms since 1970: for all partitions, or by topic and partition.
Stamps = int | dict[str, dict[int, int]]
#: The longest time that minOffsetsPerTrigger delays a batch, as in Kafka's source.
MAX_DELAY_MS = 900_000

_NAMES = ("topic", "topics", "subscribe", "topicspattern", "subscribepattern", "assign")
_STRATEGY = "startingOffsetsByTimestampStrategy"
#: Every option of a read, as the documentation spells it.
READ = (
    "url",
    "token",
    "path",
    "coldPath",
    "topic",
    "topics",
    "topicsPattern",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    _STRATEGY,
    "failOnDataLoss",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxOffsetsPerTrigger",
    "maxRecordsPerPartition",
    "minPartitions",
    "fetchConcurrency",
    "includeHeaders",
    "timestampType",
    "valueSchema",
    "valuePrefix",
    "mode",
    "columnNameOfCorruptRecord",
    "columns",
    "pushFilters",
)
#: A name in the option columns, up to the next comma.
_COLUMN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`,\s][^,]*?|))\s*(?=,|$)")
_UNITS_MS = {
    "": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip


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
    starting_ts: Stamps | None = None
    ending_ts: Stamps | None = None
    #: Whether a partition without a record at or after `starting_ts` fails the read; else it is read from its end on.
    starting_ts_must_exist: bool = False
    fail_on_loss: bool = True
    #: Records of a batch of a stream. With fewer than `min_records`, it waits for `max_delay_ms`.
    min_records: int | None = None
    max_records: int | None = None
    max_delay_ms: int = MAX_DELAY_MS
    min_partitions: int = 1
    #: The most seqs that a task reads.
    max_task_records: int | None = None
    fetch_concurrency: int = 2
    headers: bool = False
    #: Whether `timestamp` is the time that a Kafka client gave to a record, if it did.
    create_time: bool = False
    #: Whether a batch read may use the filters of its query: Spark gives what was read so to other queries, too.
    push_filters: bool = False
    #: Typed columns.
    values: ValueShape | None = None
    #: Only these columns, in this order; empty: all.
    columns: tuple[str, ...] = ()
    #: The names of all columns as the schema of the query spells them; empty: as they are.
    spelling: tuple[str, ...] = ()

    @property
    def shape(self) -> Shape:
        """The columns of the read. Typed columns that are not requested are not parsed."""
        values = self.values.only(self.columns) if self.values is not None and self.columns else self.values
        return Shape(self.headers, self.create_time, values, self.columns)

    def with_schema(self, wanted: Sequence[tuple[str, str]]) -> ReadOptions:
        """The same read with the columns (name, type) of a schema that the query gives (`.schema(…)`).

        Raises BadOption for an unknown column, and for another type: Spark would fail each task.
        """
        types = self.shape.types()
        by_name = {name.lower(): name for name in types}
        found: list[str] = []
        for name, kind in wanted:
            column = by_name.get(name.lower())
            if column is None:
                hint = " Set includeHeaders." if name.lower() == "headers" else nearest(name, by_name)
                raise BadOption(
                    f"The schema of the query has a column {name}, but this read only has {', '.join(types)}.{hint} "
                    "Columns of values come from the option valueSchema."
                )
            if _plain(kind) != _plain(types[column]):
                typed = ", or change valueSchema" if column not in arrow_schema(headers=True).names else ""
                raise BadOption(
                    f"The schema of the query has {name} {kind}, but {column} is {types[column]} here: write "
                    f"{name} {types[column]} there, and cast it after the read{typed}."
                )
            found.append(column)
        if found == list(types):
            return replace(self, spelling=_spelling(wanted, found))
        return replace(self, columns=tuple(found), spelling=_spelling(wanted, found))


def _plain(kind: str) -> str:
    """A type without backticks, which Spark leaves out, and without collations, which are not part of values."""
    return re.sub(r" collate \w+", "", kind.replace("`", ""), flags=re.IGNORECASE)


def _spelling(wanted: Sequence[tuple[str, str]], found: Sequence[str]) -> tuple[str, ...]:
    names = tuple(name for name, _ in wanted)
    return () if names == tuple(found) else names


def parse(options: Mapping[str, str]) -> ReadOptions:
    """Parse options. Raises BadOption, which names the option and its valid values."""
    given = {name.lower(): str(value) for name, value in options.items()}
    check_names(given, READ, "read")
    url = address_of(given)
    path = given.get("path", "")
    if bool(url) == bool(path):
        raise BadOption("Set either url (the broker's HTTP address, such as http://host:4000), or path.")
    _check_source(given, path)
    topics, pattern = _wanted(given)
    assigned = _assigned(given["assign"]) if given.get("assign") else {}
    starting_ts, ending_ts = _stamps(given, "starting"), _stamps(given, "ending")
    must_exist = _choice(given, _STRATEGY.lower(), "error", "latest") == "error"
    if given.get(_STRATEGY.lower()) and starting_ts is None:
        raise BadOption(
            f"{_STRATEGY} is about a starting time: set startingTimestamp or startingOffsetsByTimestamp as well, or "
            "remove it."
        )
    starting, ending = (_bound(given.get(name), name) for name in ("startingoffsets", "endingoffsets"))
    if starting_ts is None and ending_ts is None:
        _check_order(starting, ending)
    least, most = (_whole(given, name, 1) for name in ("minoffsetspertrigger", "maxoffsetspertrigger"))
    if least is not None and most is not None and least > most:
        raise BadOption(f"minOffsetsPerTrigger ({least}) is greater than maxOffsetsPerTrigger ({most}).")
    headers = _flag(given, "includeheaders", False)
    record = arrow_schema(headers=headers).names
    values = _values(given, record)
    return ReadOptions(
        url=url,
        token=given.get("token"),
        path=path,
        cold_path=given.get("coldpath", ""),
        topics=topics,
        assigned=assigned,
        pattern=pattern,
        # As in Kafka's source, a time takes precedence over an offset.
        starting=starting if starting_ts is None else None,
        ending=ending if ending_ts is None else None,
        starting_ts=starting_ts,
        ending_ts=ending_ts,
        starting_ts_must_exist=must_exist,
        fail_on_loss=_flag(given, "failondataloss", True),
        min_records=least,
        max_records=most,
        max_delay_ms=_duration_ms(given, "maxtriggerdelay", MAX_DELAY_MS),
        min_partitions=_whole(given, "minpartitions", 1) or 1,
        max_task_records=_whole(given, "maxrecordsperpartition", 1),
        fetch_concurrency=_whole(given, "fetchconcurrency", 1) or 2,
        headers=headers,
        create_time=_choice(given, "timestamptype", "LogAppendTime", "CreateTime") == "CreateTime",
        push_filters=_flag(given, "pushfilters", False),
        values=values,
        columns=_columns(given, [*record, *([] if values is None else [each.name for each in values.fields()])]),
    )


def _check_source(given: Mapping[str, str], path: str) -> None:
    if given.get("coldpath") and not path:
        raise BadOption(
            "coldPath is about a read without a broker (path): a broker reads its own cold tier. Remove it."
        )
    if given.get("token") and path:
        raise BadOption("token is about a broker (url): a path is read with the rights of this process. Remove it.")


def _values(given: Mapping[str, str], record: Sequence[str]) -> ValueShape | None:
    if not given.get("valueschema"):
        for name in ("valueprefix", "mode", "columnnameofcorruptrecord"):
            if name in given:
                raise BadOption(f"{shown(name, READ)} is about typed columns: set valueSchema as well, or remove it.")
        return None
    return value_shape(
        given["valueschema"],
        record,
        mode=given.get("mode", PERMISSIVE).strip(),
        prefix=given.get("valueprefix", ""),
        corrupt=given.get("columnnameofcorruptrecord", CORRUPT),
    )


def _columns(given: Mapping[str, str], known: Sequence[str]) -> tuple[str, ...]:
    """The requested columns, as they are spelled."""
    if "columns" not in given:
        return ()
    by_name = {name.lower(): name for name in known}
    found: list[str] = []
    for name in _column_names(given["columns"]):
        if name.lower() not in by_name:
            known_as = {each: quoted(column) for each, column in by_name.items()}
            hint = " Set includeHeaders." if name.lower() == "headers" else nearest(name, known_as)
            raise BadOption(f"columns names {name!r}, which is no column of this read.{hint}")
        if by_name[name.lower()] in found:
            raise BadOption(f"columns names {name} twice.")
        found.append(by_name[name.lower()])
    return tuple(found)


def _column_names(text: str) -> list[str]:
    """The names in a list with commas. As in Spark, a name may be in backticks, with each of its own doubled."""
    found: list[str] = []
    at = 0
    while at <= len(text):
        item = _COLUMN.match(text, at)
        if item is None:
            raise BadOption(
                f"columns is not clear from {text[at:].strip()!r} on: write names with commas between them. A name "
                "that contains a comma or a backtick is in backticks, and each backtick in it is doubled."
            )
        found.append(item[2] if item[1] is None else item[1].replace("``", "`"))
        at = item.end() + 1
    return found


def _wanted(given: Mapping[str, str]) -> tuple[tuple[str, ...], str | None]:
    found = [name for name in _NAMES if given.get(name)]
    if len(found) != 1:
        raise BadOption("Set exactly one of topic, topics, topicsPattern, subscribe, subscribePattern, assign.")
    text = given[found[0]]
    if found[0].endswith("pattern"):
        try:
            re.compile(text)
        except re.error as error:
            raise BadOption(f"{shown(found[0], READ)} is not a regular expression: {error}.") from error
        return (), text
    if found[0] == "assign":
        return tuple(sorted(_assigned(text))), None
    names = (text,) if found[0] == "topic" else tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise BadOption(f"{found[0]} names no topic, but is {text!r}: write names with commas between them.")
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
    if text is None:
        return None
    if (word := text.strip().lower()) in ("earliest", "latest"):
        return word
    return _by_partition(text, name, '{"orders": {"0": 17}}, earliest or latest')


def _check_order(starting: Bound | None, ending: Bound | None) -> None:
    """Raises BadOption if a partition ends before it begins. -1 and -2 depend on the topic, so they never do."""
    if not isinstance(starting, dict) or not isinstance(ending, dict):
        return
    for topic, ends in ending.items():
        for partition, last in ends.items():
            first = starting.get(topic, {}).get(partition, EARLIEST)
            if 0 <= last < first:
                raise BadOption(
                    f"endingOffsets ends before offset {last} of {topic} (partition {partition}), but startingOffsets "
                    f"begins at offset {first}."
                )


def _stamps(given: Mapping[str, str], side: str) -> Stamps | None:
    """The time of one side. One for all partitions takes precedence over those by partition, as in Kafka's source."""
    by_partition = None
    if text := given.get(f"{side}offsetsbytimestamp"):
        by_partition = _by_partition(text, f"{side}offsetsbytimestamp", '{"orders": {"0": 1700000000000}}')
        for topic, stamps in by_partition.items():
            if any(each < 0 for each in stamps.values()):
                name = shown(f"{side}offsetsbytimestamp", READ)
                raise BadOption(f"{name}: times of {topic} must be ms since 1970, 0 or more.")
    one = _whole(given, f"{side}timestamp", 0)
    return by_partition if one is None else one


def _by_partition(text: str, name: str, example: str) -> dict[str, dict[int, int]]:
    found = _json(text, name, example)
    result: dict[str, dict[int, int]] = {}
    for topic, each in found.items():
        entries = cast("dict[str, Any]", each if isinstance(each, dict) else {"": None})
        if any(not key.isdecimal() or type(number) is not int for key, number in entries.items()):
            raise BadOption(f"{shown(name, READ)} must be {_alternatives(example)} (topic {topic}).")
        result[topic] = {int(key): number for key, number in entries.items()}
    return result


def _alternatives(example: str) -> str:
    """`JSON like X, or earliest or latest`."""
    shape, _, words = example.partition("}}, ")
    return f"JSON like {shape}}}}}, or {words}" if words else f"JSON like {example}"


def _json(text: str, name: str, example: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise BadOption(f"{shown(name, READ)} must be {_alternatives(example)}: {error}.") from error


def _whole(given: Mapping[str, str], name: str, least: int) -> int | None:
    if name not in given:
        return None
    text = given[name].strip()
    if not (text.isascii() and text.isdecimal()) or int(text) < least:
        raise BadOption(f"{shown(name, READ)} must be an integer, {least} or more, not {given[name]!r}.")
    return int(text)


def _duration_ms(given: Mapping[str, str], name: str, default: int) -> int:
    if name not in given:
        return default
    found = re.fullmatch(r"([0-9]+) ?([a-z]*)", given[name].strip().lower())
    if found is None or found[2] not in _UNITS_MS:
        raise BadOption(f"{shown(name, READ)} must be a time such as 500ms, 30s, 15m, 1h, not {given[name]!r}.")
    return int(found[1]) * _UNITS_MS[found[2]]


def _choice(given: Mapping[str, str], name: str, *choices: str) -> str:
    """The chosen one; the first is the default."""
    text = given.get(name, choices[0])
    for each in choices:
        if text.strip().lower() == each.lower():
            return each
    raise BadOption(f"{shown(name, READ)} must be {' or '.join(choices)}, not {text!r}.")


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise BadOption(f"{shown(name, READ)} must be true or false, not {given[name]!r}.")
    return text == "true"


def check_topics(bound: Bound | Stamps | None, name: str, topics: Sequence[str]) -> None:
    """Raises BadOption if offsets or times in JSON name a topic that is not one of `topics`."""
    for topic in bound if isinstance(bound, dict) else ():
        if topic not in topics:
            hint = nearest(topic, {each.lower(): each for each in topics})
            raise BadOption(f"{name} names topic {topic}, which is not read.{hint}")


def check_named(bound: Bound | Stamps | None, name: str, topic: str, partitions: Sequence[int]) -> None:
    """Raises BadOption if offsets or times in JSON do not name exactly these partitions of a topic."""
    if not isinstance(bound, dict):
        return
    named = bound.get(topic, {})
    missing = [each for each in partitions if each not in named]
    if missing:
        ends = "." if name.endswith("ByTimestamp") else ", with -1 for latest and -2 for earliest."
        raise BadOption(
            f"{name} does not name partition {', '.join(map(str, missing))} of topic {topic}: name all that are "
            f"read{ends}"
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
