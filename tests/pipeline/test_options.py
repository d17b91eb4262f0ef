"""Options as Spark passes them, and offsets as Kafka's users write them."""

from __future__ import annotations

import pytest
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

from pipeline.errors import BadOption
from pipeline.options import EARLIEST, LATEST, ReadOptions, first_seq, parse
from pipeline.source.datasource import type_of

PLACE = {"url": "http://there:1"}


def test_kafkas_names_are_understood() -> None:
    found = parse({"Kafka.Bootstrap.Servers": "http://a:1,b:2", "SUBSCRIBE": "x, y", "failondataloss": "FALSE"})
    assert (found.url, found.topics, found.fail_on_loss) == ("http://a:1", ("x", "y"), False)
    assert parse({**PLACE, "assign": '{"x":[0]}'}).topics == ("x",)


def test_options_of_kafkas_source_have_its_meaning() -> None:
    found = parse(
        {
            **PLACE,
            "subscribe": "x",
            "minOffsetsPerTrigger": "5",
            "maxOffsetsPerTrigger": "50",
            "maxTriggerDelay": "2m",
            "maxRecordsPerPartition": "7",
            "minPartitions": "3",
            "includeHeaders": "true",
            "timestampType": "createtime",
        }
    )
    assert (found.min_records, found.max_records, found.max_delay_ms) == (5, 50, 120_000)
    assert (found.max_task_records, found.min_partitions) == (7, 3)
    assert (found.headers, found.create_time) == (True, True)


@pytest.mark.parametrize(
    ("text", "ms"), [("10", 10), ("10ms", 10), ("3 s", 3000), ("1min", 60_000), ("1h", 3_600_000), ("2d", 172_800_000)]
)
def test_a_delay_has_sparks_units(text: str, ms: int) -> None:
    assert parse({**PLACE, "topic": "x", "maxTriggerDelay": text}).max_delay_ms == ms


def test_a_time_takes_precedence_over_times_by_partition_and_these_over_offsets() -> None:
    offsets = {**PLACE, "topic": "x", "startingOffsets": "earliest", "endingOffsets": '{"x":{"0":4}}'}
    stamps = {"startingOffsetsByTimestamp": '{"x":{"0":10}}', "endingOffsetsByTimestamp": '{"x":{"0":20}}'}
    found = parse(offsets | stamps)
    assert (found.starting, found.starting_ts, found.ending, found.ending_ts) == (
        None,
        {"x": {0: 10}},
        None,
        {"x": {0: 20}},
    )
    found = parse(offsets | stamps | {"startingTimestamp": "1", "endingTimestamp": "2"})
    assert (found.starting_ts, found.ending_ts) == (1, 2)


def test_a_time_without_records_fails_unless_told_otherwise() -> None:
    told = {**PLACE, "topic": "x", "startingTimestamp": "1"}
    assert parse(told).starting_ts_must_exist
    assert not parse({**told, "startingOffsetsByTimestampStrategy": "latest"}).starting_ts_must_exist


def test_spaces_around_a_value_do_not_count() -> None:
    assert parse({"url": " http://there:1 ", "topic": "x"}).url == "http://there:1"
    given = {"topic": "x", "startingOffsets": " earliest ", "endingOffsets": "Latest ", "failOnDataLoss": " false"}
    found = parse({**PLACE, **given, "includeHeaders": "true "})
    assert (found.starting, found.ending, found.fail_on_loss, found.headers) == ("earliest", "latest", False, True)


def test_only_two_numbers_of_a_partition_can_contradict_each_other() -> None:
    bounds = {"startingOffsets": '{"x":{"0":9,"1":-1,"2":5}}', "endingOffsets": '{"x":{"0":9,"1":3,"2":-1}}'}
    assert parse({**PLACE, "topic": "x", **bounds}).ending == {"x": {0: 9, 1: 3, 2: -1}}
    # A time takes precedence, so the offset has no meaning.
    parse({**PLACE, "topic": "x", **bounds, "endingOffsets": '{"x":{"0":1}}', "endingTimestamp": "5"})


TYPED = {
    **PLACE,
    "topic": "x",
    "valueSchema": "id bigint, d decimal(10,2), o struct<`a b`:array<int>,m:map<string,date>>",
}
NAMES = ["seq", "d", "o"]


def test_a_schema_of_the_query_requests_columns_in_its_spelling() -> None:
    options = parse(TYPED)
    kinds = {"seq": "bigint", "d": "decimal(10,2)", "o": "struct<a b:array<int>,m:map<string,date>>"}
    found = options.with_schema([(name, kinds[name]) for name in NAMES])
    assert (found.columns, found.spelling) == (tuple(NAMES), ())
    found = options.with_schema([(name.upper(), kinds[name]) for name in NAMES])
    assert (found.columns, found.spelling) == (tuple(NAMES), ("SEQ", "D", "O"))
    assert options.with_schema(list(options.shape.types().items())) == options


@pytest.mark.parametrize(
    ("name", "kind", "what"),
    [
        ("value", "string", "has value string, but value is binary here: write value binary there, and cast it"),
        ("Value", "string", "has Value string, but value is binary here"),
        ("id", "int", "has id int, but id is bigint here: .* or change valueSchema"),
        ("o", "struct<a b:array<int>>", "o is struct<`a b`:array<int>,m:map<string,date>> here"),
        ("valeu", "binary", "has a column valeu, but .* Did you mean value?"),
        ("headers", "string", "Set includeHeaders"),
        ("node", "string NOT NULL", "has node string NOT NULL, but node is string here"),
    ],
)
def test_a_schema_of_the_query_must_have_the_types_of_the_columns(name: str, kind: str, what: str) -> None:
    with pytest.raises(BadOption, match=what):
        parse(TYPED).with_schema([("seq", "bigint"), (name, kind)])


def test_columns_that_are_never_null_are_seen_in_any_depth() -> None:
    kinds = ArrayType(StructType([StructField("a", MapType(StringType(), LongType()))]))
    assert type_of(StructField("o", kinds)) == "array<struct<a:map<string,bigint>>>"
    for strict in (
        StructField("o", LongType(), nullable=False),
        StructField("o", ArrayType(LongType(), containsNull=False)),
        StructField("o", ArrayType(StructType([StructField("a", LongType(), nullable=False)]))),
        StructField("o", MapType(StringType(), LongType(), valueContainsNull=False)),
    ):
        assert type_of(strict).endswith(" NOT NULL")


def test_partitions_are_assigned_by_topic() -> None:
    found = parse({**PLACE, "assign": '{"y":[2,0,2],"x":[1]}'})
    assert (found.topics, found.assigned) == (("x", "y"), {"x": (1,), "y": (0, 2)})


def test_defaults() -> None:
    assert parse({**PLACE, "topic": "x"}) == ReadOptions(
        url="http://there:1", topics=("x",), starting_ts_must_exist=True
    )


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({**PLACE, "topic": "x", "startingOfsets": "latest"}, "Did you mean startingOffsets"),
        ({**PLACE, "topic": "x", "kafka.security.protocol": "SASL_SSL"}, "https://, and token"),
        ({**PLACE, "topic": "x", "kafka.ssl.truststore.location": "a"}, "Write url with https://"),
        ({**PLACE, "topic": "x", "kafka.group.id": "g"}, "no consumer group"),
        ({**PLACE, "topic": "x", "groupIdPrefix": "g"}, "no consumer group"),
        ({**PLACE, "topic": "x", "kafka.max.poll.records": "1"}, "configures Kafka's client"),
        ({**PLACE, "topic": "x", "kafkaConsumer.pollTimeoutMs": "1"}, "configures Kafka's client"),
        ({"kafka.bootstrap.servers": "a:9092", "topic": "x"}, "not that of its Kafka port"),
        ({"url": "a:9092", "topic": "x"}, "not a URL"),
        ({"url": "PLAINTEXT://a:9092", "topic": "x"}, "url is 'PLAINTEXT://a:9092'.*not that of its Kafka port"),
        ({"url": "a:4000", "topic": "x"}, "url is 'a:4000', without http:// in front: write url=http://a:4000"),
        (
            {"url": "http:/a:4000", "topic": "x"},
            "url is 'http:/a:4000', which is not a URL.*write url=http://host:4000",
        ),
        ({"url": "http://a:port", "topic": "x"}, "url is 'http://a:port', .*write url=http://host:4000"),
        ({"url": "http://n:secret@a:port", "topic": "x"}, "url is 'a:port', "),
        ({"url": "http://a:4000/?b=c", "topic": "x"}, "url is .* no . and no #: write url=http://host:4000"),
        ({**PLACE, "kafka.bootstrap.servers": "http://a:1", "topic": "x"}, "only one of url"),
        ({**PLACE, "topic": "x", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "is greater than"),
        ({**PLACE, "topic": "x", "maxTriggerDelay": "soon"}, "maxTriggerDelay must be a time"),
        ({**PLACE, "topic": "x", "startingOffsetsByTimestamp": "7"}, "must be JSON like"),
        ({**PLACE, "topic": "x", "startingOffsetsByTimestamp": '{"x":{"0":-1}}'}, "0 or more"),
        ({**PLACE, "topic": "x", "startingOffsetsByTimestampStrategy": "none"}, "must be error or latest"),
        ({**PLACE, "topic": "x", "timestampType": "other"}, "must be LogAppendTime or CreateTime"),
        (
            {**PLACE, "topic": "x", "startingOffsetsByTimestampStrategy": "latest"},
            "about a starting time: set starting",
        ),
        (
            {**PLACE, "topic": "x", "startingOffsetsByTimestampStrategy": "error", "endingTimestamp": "1"},
            "about a starting time: set starting",
        ),
        ({**PLACE, "topic": "x", "coldPath": "/cold"}, "coldPath is about a read without a broker"),
        ({"path": "/data", "topic": "x", "token": "key"}, "token is about a broker"),
        ({"topic": "x"}, "either url"),
        ({**PLACE, "path": "/data", "topic": "x"}, "either url"),
        (PLACE, "exactly one of topic"),
        ({**PLACE, "topic": "x", "subscribe": "y"}, "exactly one of topic"),
        ({**PLACE, "topic": "x", "topik": "y"}, "Option topik does not exist"),
        ({**PLACE, "topicsPattern": "("}, "not a regular expression"),
        ({**PLACE, "assign": '{"x":[-1]}'}, "partitions of x must be numbers, 0 or more"),
        ({**PLACE, "assign": '{"x":[]}'}, "partitions of x must be numbers, 0 or more"),
        ({**PLACE, "assign": '{"x":[true]}'}, "partitions of x must be numbers, 0 or more"),
        ({**PLACE, "assign": "{}"}, "assign names no topic"),
        (
            {**PLACE, "topic": "x", "startingOffsets": "soon"},
            "startingOffsets must be JSON like .*, or earliest or latest",
        ),
        ({**PLACE, "topic": "x", "startingOffsets": '{"x":7}'}, "JSON like .*, or earliest or latest"),
        ({**PLACE, "topic": "x", "minPartitions": "-1"}, "must be an integer"),
        ({**PLACE, "topic": "x", "failOnDataLoss": "maybe"}, "true or false"),
        ({**PLACE, "topic": "x", "startingOffsets": '{"x":{"0":1.5}}'}, "JSON like"),
        ({**PLACE, "subscribe": " , "}, "subscribe names no topic"),
        (
            {**PLACE, "topic": "x", "startingOffsets": '{"x":{"0":9}}', "endingOffsets": '{"x":{"0":8}}'},
            "endingOffsets ends before offset 8 of x .* startingOffsets begins at offset 9",
        ),
    ],
)
def test_contradictory_options_are_refused(options: dict[str, str], what: str) -> None:
    with pytest.raises(BadOption, match=what):
        parse(options)


def test_offsets_count_from_0_and_seqs_from_1() -> None:
    bound = parse({**PLACE, "topic": "x", "startingOffsets": '{"x":{"0":0},"y":{"0":-2},"z":{"0":-1}}'}).starting
    assert [first_seq(bound, topic, 0, "latest") for topic in "xyz"] == [1, EARLIEST, LATEST]
    assert first_seq(None, "x", 0, "earliest") == EARLIEST
    with pytest.raises(BadOption, match="do not name partition 0 of topic w"):
        first_seq(bound, "w", 0, "latest")


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ("seq, `a,b` ,`q``uo`", ("seq", "a,b", "q`uo")),
        ("`seq`,`A,B`", ("seq", "a,b")),
        ("q`uo", ("q`uo",)),
        ("two words,seq", ("two words", "seq")),
    ],
)
def test_columns_may_be_in_backticks(columns: str, found: tuple[str, ...]) -> None:
    typed = {"valueSchema": "`a,b` int, `q``uo` int, `two words` int"}
    assert parse({**PLACE, "topic": "x", **typed, "columns": columns}).columns == found


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ("seq,`a,b", "columns is not clear from '`a,b' on: .* doubled"),
        ("`a,b`seq", "columns is not clear from '`a,b`seq' on"),
        ("a,b", "columns names 'a', which is no column of this read"),
        ("a.b", "Did you mean `a,b`?"),
        ("seq,", "columns names '', which"),
    ],
)
def test_columns_that_are_not_clear_are_refused(columns: str, what: str) -> None:
    with pytest.raises(BadOption, match=what):
        parse({**PLACE, "topic": "x", "valueSchema": "`a,b` int", "columns": columns})
