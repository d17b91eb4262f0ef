"""`topics schema infer` and `topics schema ddl`: typed columns for Spark and exports."""

from __future__ import annotations

import json
import sys
from base64 import b64decode
from collections.abc import Iterator
from typing import Annotated

from topics_client.blocking import Client
from topics_client.column_types import ddl_of
from topics_client.commands.connection import JsonOption, PartitionOption, TopicArgument, broker
from topics_client.commands.declaring import Argument, Group, Option
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.terminal import EXIT_CODES_HELP, ExitCode, fail, note, plain_endings
from topics_client.inference import Inference
from topics_client.json_schema import NotATable, schema_of, struct_of

schema = Group("schema", "Types of values, for typed columns of Spark and of exports.", EXIT_CODES_HELP)

#: The most records of a sample.
MAX_SAMPLE = 100_000
_PAGE_RECORDS = 1000
_PAGE_BYTES = 8 << 20
_RAW = b'{"$base64":"'
#: Columns of a record, which typed columns cannot be named like without a prefix.
_RECORD = [
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
    "seq",
    "node",
    "meta",
]
_TAKEN = {name.lower() for name in _RECORD}


@schema.add("infer", EXIT_CODES_HELP)
def infer(
    topic: TopicArgument,
    records: Annotated[
        int, Option("--records", "-n", min=1, max=MAX_SAMPLE, help="At most this many records of each partition.")
    ] = 1000,
    partition: PartitionOption = None,
    json_schema: Annotated[bool, Option("--json-schema", help="Print a JSON Schema instead of a DDL.")] = False,
    prefer_decimal: Annotated[
        bool, Option("--prefer-decimal", help="Numbers with a fraction are decimals, not doubles.")
    ] = False,
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Print the types of a topic's values, inferred from a sample.

    The sample is the oldest and the newest records of each partition, half of --records each; stderr says which. The
    result is Spark's DDL, for the option valueSchema of the Spark source and --value-schema of exports.

    With --json: one object, {"ddl", "json_schema", "objects", "nulls", "others", "sample"}.
    """
    found = Inference()
    with broker(reach, as_json) as client:
        sample = [_read(client, topic, at, each, records, found) for at, each in _parts(client, topic, partition)]
        fields = found.fields(prefer_decimal=prefer_decimal)
        if not fields:
            seen = found.nulls + found.others
            fail(
                f"{topic}: none of the {seen:,} values of the sample is an object with members: there are no columns.",
                ExitCode.REFUSED,
                as_json=as_json,
            )
        if as_json:
            counts = {"objects": found.objects, "nulls": found.nulls, "others": found.others, "sample": sample}
            print(json.dumps({"ddl": ddl_of(fields), "json_schema": schema_of(fields), **counts}))
            return
        note(f"Sample: {'; '.join(sample)}. {_summary(found)}")
        for names in found.spellings:
            note(f"{' and '.join(names)} differ only in upper and lower case. Spark does not: the first is taken.")
        if taken := [each.name for each in fields if each.name.lower() in _TAKEN]:
            note(f"Every record has columns named {', '.join(taken)}: read with valuePrefix (exports: --value-prefix).")
        print(json.dumps(schema_of(fields), indent=2) if json_schema else ddl_of(fields))


def _summary(found: Inference) -> str:
    odd = f"; other values, which will be malformed: {found.others:,}" if found.others else ""
    return f"{found.objects:,} values are objects{odd}."


def _parts(client: Client, topic: str, partition: int | None) -> Iterator[tuple[int | None, tuple[int, int]]]:
    """The partitions of the sample, with the first and the last seq of each."""
    state = client.state(topic, touch=False)
    if not state.partitions:
        yield partition, (state.earliest_seq, state.head_seq)
    for each in state.partitions:
        if partition is None or each.partition == partition:
            yield each.partition, (each.earliest_seq, each.head_seq)


def _read(client: Client, topic: str, partition: int | None, seqs: tuple[int, int], most: int, found: Inference) -> str:
    """Add the sample of one partition. Returns what it is."""
    earliest, head = seqs
    count = max(0, head - earliest + 1)
    first = most - most // 2
    ranges = [(earliest, head)] if count <= most else [(earliest, earliest + first - 1), (head - most // 2 + 1, head)]
    for start, end in ranges:
        _add(client, topic, partition, start, end, found)
    shown = " and ".join(f"{start:,} to {end:,}" for start, end in ranges if start <= end) or "none"
    return f"seqs {shown}" + (f" of partition {partition}" if partition is not None else "")


def _add(client: Client, topic: str, partition: int | None, start: int, end: int, found: Inference) -> None:
    after = start - 1
    while after < end:
        limit = min(_PAGE_RECORDS, end - after)
        page = client.read(
            topic, after, limit=limit, max_batch_bytes=_PAGE_BYTES, partition=partition, skip_corrupt=True
        )
        for record in page.records:
            if record.seq <= end:
                found.add(_text_of(record.data_raw))
        if page.next_from_seq <= after:
            break
        after = page.next_from_seq


def _text_of(data: bytes) -> bytes:
    """The value. Raw bytes, as Kafka's clients store them, may also be JSON."""
    if not data.startswith(_RAW):
        return data
    try:
        return b64decode(json.loads(data)["$base64"])
    except (ValueError, KeyError, TypeError):
        return data


@schema.add("ddl", EXIT_CODES_HELP)
def ddl(
    file: Annotated[str, Argument(metavar="FILE", help="A JSON Schema; - is stdin.")] = "-",
) -> None:
    """Print the DDL that a JSON Schema means."""
    with plain_endings(False):
        try:
            if file == "-":
                text = sys.stdin.read()
            else:
                with open(file, encoding="utf-8") as source:
                    text = source.read()
        except (OSError, UnicodeDecodeError) as error:
            fail(f"{file} cannot be read: {error}", ExitCode.USAGE)
        try:
            print(ddl_of(struct_of(text).fields))
        except NotATable as error:
            fail(f"{file}: {error}", ExitCode.USAGE)
