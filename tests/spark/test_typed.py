"""Typed columns, requested columns and filters through real Spark: the same rows as without any of them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipeline.errors import BadOption
from pipeline.values import arrow_field, parse_schema
from tests.pipeline.exports import command
from tests.support.broker_process import ROOT
from tests.support.small_segments import SmallSegments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = (
    "n int, big bigint, x double, r float, s string, b boolean, d decimal(20,3), day date, t timestamp, "
    "`l t` timestamp_ntz, o struct<p:int,q:struct<z:string>>, a array<int>, m map<string,double>, bin binary"
)
TIMES = "spark.sql.timestampType"
PUSHING = "spark.sql.python.filterPushdown.enabled"
COUNT = 700
ODD = [{"n": "no number"}, [1], "text", {"n": 1.5}, {"o": {"p": "x"}}]


def row(number: int) -> dict[str, Any]:
    """A record's value. Every few rows lack a member, or have null or a special number."""
    found = {
        "n": number % 50 - 10,
        "big": (1 << 62) + number,
        "x": ["NaN", number / 8, "Infinity", -0.0, None][number % 5],
        "r": 0.1 * (number % 7),
        "s": ["", "abc", "Abc", "é" * (number % 4), None, "a%b"][number % 6],
        "b": [True, False, None][number % 3],
        "d": number + 0.125,
        "day": f"2024-01-{number % 28 + 1:02}",
        "t": f"2024-01-01T{number % 24:02}:00:00Z",
        "l t": f"2024-01-01 {number % 24:02}:00:00.5",
        "o": [{"p": number, "q": {"z": str(number % 5)}}, {"p": None}, None][number % 3],
        "a": [number, None],
        "m": {"k": number},
        "bin": "YWJj",
    }
    return {name: value for at, (name, value) in enumerate(found.items()) if (number + at) % 11}


@pytest.fixture(scope="module")
def filled(broker: SmallSegments) -> SmallSegments:
    rows: list[Any] = [row(number) for number in range(COUNT)]
    for at, value in enumerate([*ODD, None]):
        rows[at * 7 + 3] = value
    for begin in range(0, COUNT, 100):
        broker.client.append("typed", rows[begin : begin + 100], tag=f"tag-{begin // 100 % 3}")
    broker.await_sealed("typed", COUNT // 2)
    return broker


def read(spark: SparkSession, broker: SmallSegments, **options: Any) -> DataFrame:
    reader = spark.read.format("topics").option("url", broker.url).option("topic", "typed")
    return reader.options(**{"valueSchema": DDL, **options}).load()


@contextmanager
def pushing(spark: SparkSession) -> Iterator[None]:
    with conf(spark, PUSHING, "true"):
        yield


@contextmanager
def conf(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name)


def test_types_are_those_that_spark_has(spark: SparkSession, filled: SmallSegments) -> None:
    typed = spark.createDataFrame([], DDL).schema
    assert list(to_arrow_schema(typed, timezone="UTC")) == [arrow_field(each) for each in parse_schema(DDL)]
    frame = read(spark, filled)
    assert frame.schema.fields[-len(typed) - 1 : -1] == typed.fields
    assert frame.columns[-1] == "_corrupt_record"
    assert frame.count() == COUNT


@pytest.mark.parametrize(
    "ddl",
    [
        "a INT NOT NULL COMMENT 'it''s', b: struct<c:decimal, `d.e`: array<dec(4,1)>>",
        "struct<a:byte,b short,c:map<string,array<date>>>", "12ab real, _x long, int int, string string",
        "a timestamp without time zone, b timestamp with local time zone, c timestamp_ltz",
        "a int, -- the first, int\nb/**/int /* a b,\n */ not /**/ null -- end",
        r"""a int comment 'x' "y" 'it\'s', b int comment r'\', c int comment '--', `--` int""",
        "a string collate UTF8_BINARY not null, `a``b` numeric(38,38)",  "`` int, a struct<``:int>",
        "a int,", "a struct<b:int,>", ",a int", "a int b int", "a.b int", "a int null", "a int /* open", "`a` `int`",
        "a int not null not null", "a int comment 'x' not null", "a timestamp with time zone", "a decimal(39,1)",
        "a decimal(5,6)", "a struct<b>", "a array<int not null>", "a int(5)", "(a int)", "a int;", "'a' int",
    ],
)  # fmt: skip
def test_a_schema_is_read_as_spark_reads_it(spark: SparkSession, ddl: str) -> None:
    """The same columns, or both refuse it."""
    try:
        theirs = StructType.fromDDL(ddl)
    except PySparkException:
        with pytest.raises(BadOption):
            parse_schema(ddl)
        return
    # Ours are nullable, whatever the DDL says.
    ours = [arrow_field(each) for each in parse_schema(ddl)]
    expected = to_arrow_schema(theirs, timezone="UTC")
    assert [(each.name, each.type) for each in ours] == [(each.name, each.type) for each in expected]


def test_values_are_those_of_from_json(spark: SparkSession, filled: SmallSegments) -> None:
    """For values that fit, Spark's own reader finds the same."""
    plain = spark.createDataFrame([], DDL).schema
    frame = read(spark, filled).where("_corrupt_record is null and value != cast('null' as binary)")
    text = f.col("value").cast("string")
    names = ["n", "big", "x", "r", "s", "b", "d", "day", "t", "`l t`", "o", "a", "bin"]
    theirs = frame.select("seq", f.from_json(text, plain, {"timestampNTZFormat": "yyyy-MM-dd HH:mm:ss.S"}).alias("v"))
    ours = {each.seq: each for each in frame.select("seq", *names, f.to_json("m").alias("m")).collect()}
    found = theirs.select("seq", *(f"v.{name}" for name in names), f.to_json("v.m").alias("m")).collect()
    assert len(found) == COUNT - len(ODD) - 1
    for each in found:
        assert str(ours[each.seq]) == str(each)


def test_what_happens_to_values_that_do_not_fit(spark: SparkSession, filled: SmallSegments) -> None:
    corrupt = read(spark, filled).where("_corrupt_record is not null").orderBy("seq").collect()
    assert [json.loads(each._corrupt_record) for each in corrupt] == ODD
    assert {each[name] for each in corrupt for name in ("n", "o", "a", "m")} == {None}
    assert read(spark, filled, mode="DROPMALFORMED").count() == COUNT - len(ODD)
    with pytest.raises(
        PySparkException, match=r"the value of seq 4 does not fit valueSchema: its member n is a string"
    ):
        read(spark, filled, mode="failfast").count()
    # Of the requested columns alone.
    assert read(spark, filled, mode="failfast", columns="seq,s", endingOffsets='{"typed":{"0":9}}').count() == 9


def test_requested_columns_have_the_same_values(spark: SparkSession, filled: SmallSegments) -> None:
    whole = {each.seq: each for each in read(spark, filled).collect()}
    for columns in (
        "seq,n",
        "s,seq",
        "seq,key,timestamp,_corrupt_record",
        "seq,o,node,value",
        "seq,offset,partition,topic",
    ):
        frame = read(spark, filled, columns=columns)
        assert frame.columns == columns.split(",")
        for each in frame.collect():
            for name in frame.columns:
                if name != "_corrupt_record":
                    assert str(each[name]) == str(whole[each.seq][name]) or whole[each.seq]._corrupt_record


def test_a_schema_of_the_query_requests_columns(spark: SparkSession, filled: SmallSegments) -> None:
    reader = (
        spark.read.format("topics").option("url", filled.url).option("topic", "typed").option("valueSchema", "n int")
    )
    found = reader.schema("seq bigint, n int").load()
    assert found.columns == ["seq", "n"]
    assert found.count() == COUNT
    spelled = reader.schema("SEQ bigint, N int, Value binary").load()
    assert spelled.columns == ["SEQ", "N", "Value"]
    assert spelled.where("seq = 1").count() == 1
    with pytest.raises(PySparkException, match="The schema of the query has a column other"):
        reader.schema("seq bigint, other int").load().count()
    with pytest.raises(PySparkException, match="value is binary here"):
        reader.schema("seq bigint, value string").load().count()


WHERE = [
    "key = X'7461672D31'", "key is null", "cast(key as string) = 'tag-2'", "key in (X'7461672D31', X'7461672D32')",
    "key > X'7461672D31'", "seq = 17", "seq > 650", "seq >= 650 and seq < 660", "seq in (3, 600)", "seq <> 17",
    "seq < 0", "seq between 20 and 30", "offset < 5", "offset >= 699", "offset = -1", "offset is null",
    "not (offset <= 690)", "timestamp > '2020-01-01'", "timestamp < '2020-01-01'", "timestamp = '2020-01-01'",
    "partition = 0", "partition = 1", "partition in (1, 2)", "partition <> 0", "topic = 'typed'", "topic = 'other'",
    "topic <> 'typed'", "n = 5", "n <> 5", "n <=> 5", "not (n <=> 5)", "n is null", "n is not null", "n <=> null",
    "n in (1, 2, null)", "n not in (1, 2)", "n not in (1, null)", "n > 5 and n < 8", "n < 5 or n > 30", "n = 5.5",
    "n > 4.5", "n = 99999999999", "n = '5'", "big > 4611686018427388000", "x = double('NaN')", "x <> double('NaN')",
    "x > 1", "x >= double('NaN')", "x < double('NaN')", "not (x > 1)", "x = 0", "x in (0.5, double('NaN'))",
    "x = double('Infinity')", "x < 1", "x <= double('-Infinity')", "r = 0.1", "r > 0.1", "r = float(0.1)",
    "r >= float(0.3)", "s = 'abc'", "s = ''", "s > 'abc'", "s like 'a%'", "s like '%c'", "s like '%b%'",
    r"s like 'a\\%b'", "s like 'A_c'", "s in ('abc', 'é')", "not (s = 'abc')", "s is null", "upper(s) = 'ABC'", "b",
    "not b", "b = true", "b is null", "b <> true", "d = 5.125", "d > 600", "d in (1.125, 2.125)", "d = 5.1251",
    "d < 1e1", "day = date'2024-01-05'", "day > date'2024-01-27'", "day = '2024-01-05'",
    "t >= timestamp'2024-01-01T22:00:00Z'", "t = timestamp'2024-01-01T05:00:00Z'",
    "`l t` = timestamp_ntz'2024-01-01 05:00:00.5'", "`l t` > timestamp_ntz'2024-01-01 22:00:00'", "o.p = 600",
    "o.p is null", "o is null", "o.q.z = '3'", "o.q is not null", "not (o.p > 100)", "o.p in (0, 300)",
    "o.p <=> null", "a is null", "a[0] > 690", "size(a) = 2", "m is not null", "m['k'] = 600", "bin = X'616263'",
    "_corrupt_record is not null", "_corrupt_record like '%number%'", "n is null and _corrupt_record is null",
    "value = cast('[1]' as binary)", "node is null", "meta is null",
]  # fmt: skip
#: How many conditions the slow tier tries, each time others.
SAMPLE = 35


@pytest.mark.timeout(1200)  # a query for each condition
def test_filters_give_the_rows_that_spark_itself_keeps(
    spark: SparkSession, filled: SmallSegments, soak_mode: bool
) -> None:
    every = (
        read(spark, filled).select("seq", *(f.expr(where).alias(f"c{at}") for at, where in enumerate(WHERE))).collect()
    )
    expected = {where: sorted(row.seq for row in every if row[f"c{at}"]) for at, where in enumerate(WHERE)}
    # Conditions of every kind keep some rows and drop others.
    assert sum(0 < len(seqs) < COUNT for seqs in expected.values()) > 60
    with pushing(spark):
        for where in WHERE if soak_mode else random.sample(WHERE, SAMPLE):
            frame = read(spark, filled, pushFilters="true").where(where)
            found = sorted(each.seq for each in frame.select("seq").collect())
            assert found == expected[where], where
        options = {"mode": "dropmalformed", "columns": "seq,n", "pushFilters": "true"}
        dropped = read(spark, filled, **options).where("n is null").select("seq").collect()
    # The last one does not fit in a column that is not requested.
    odd = {at * 7 + 4 for at in range(len(ODD) - 1)}
    assert sorted(each.seq for each in dropped) == sorted({*expected["n is null"]} - odd)


def test_pushed_filters_leave_rows_out_before_spark_gets_them(spark: SparkSession, filled: SmallSegments) -> None:
    def passed_on(where: str) -> int:
        frame = read(spark, filled, columns="seq,n,s", pushFilters="true").where(where)
        frame.collect()
        node = frame._jdf.queryExecution().executedPlan()  # pyright: ignore
        while "BatchScan" not in node.nodeName():
            node = node.children().apply(0)
        return node.metrics().apply("numOutputRows").value()

    assert passed_on("n = 5") == COUNT
    with pushing(spark):
        assert passed_on("n = 5") < COUNT / 20
        assert passed_on("s like 'ab%'") < COUNT / 4
        assert passed_on("seq > 690") == 10


def test_a_frame_with_several_queries_has_all_rows_in_each(spark: SparkSession, filled: SmallSegments) -> None:
    """Spark would use the filters of one query for the others, so they are pushed only on request."""
    with pushing(spark):
        frame = read(spark, filled)
        first, rest = frame.where("seq <= 10"), frame.where("seq > 10")
        assert first.count() == 10
        assert frame.count() == COUNT
        assert rest.count() == COUNT - 10
        assert first.union(rest).count() == COUNT


def test_names_of_the_record_are_refused_or_get_a_prefix(spark: SparkSession, filled: SmallSegments) -> None:
    with pytest.raises(PySparkException, match="has a column topic, but topic is a column of the record"):
        read(spark, filled, valueSchema="topic string")
    frame = read(spark, filled, valueSchema="n int", valuePrefix="value_", columnNameOfCorruptRecord="bad")
    assert frame.columns[-2:] == ["value_n", "bad"]
    assert frame.where("value_n = 5").count() == read(spark, filled).where("n = 5").count()


def test_times_have_zones_where_the_session_takes_timestamp_for_another_type(
    spark: SparkSession, filled: SmallSegments
) -> None:
    options = {
        "valueSchema": "t timestamp, `l t` timestamp_ntz, o struct<t:timestamp>, a array<timestamp>, "
        "m map<string,timestamp>"
    }
    usual = read(spark, filled, **options)
    rows = usual.orderBy("seq").take(5)
    with conf(spark, TIMES, "TIMESTAMP_NTZ"):
        frame = read(spark, filled, **options)
        assert frame.schema == usual.schema
        assert frame.orderBy("seq").take(5) == rows


def test_a_stream_has_the_same_typed_columns(spark: SparkSession, filled: SmallSegments, tmp_path: Path) -> None:
    names = ["seq", "n", "d", "o", "_corrupt_record"]
    stream = spark.readStream.format("topics").option("url", filled.url).option("topic", "typed")
    stream = stream.option("startingOffsets", "earliest").option("valueSchema", DDL).option("columns", ",".join(names))
    query = (
        stream.load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination()
    streamed = spark.read.parquet(str(tmp_path / "out")).orderBy("seq").collect()
    batch = read(spark, filled, columns=",".join(names)).orderBy("seq").collect()
    assert list(map(str, streamed)) == list(map(str, batch))


def test_both_engines_export_the_same_typed_columns(spark: SparkSession, filled: SmallSegments, tmp_path: Path) -> None:
    schema = tmp_path / "schema.ddl"
    schema.write_text(DDL)
    tables: list[Any] = []
    for engine in ("arrow", "spark"):
        to = str(tmp_path / engine)
        common = ("--url", filled.url, "--topics", "typed", "--to", to)
        # A process of its own, because a process has one session.
        export = ("export", *common, "--engine", engine, "--format", "parquet", "--value-schema", f"@{schema}")
        said = subprocess.run([sys.executable, "-m", "pipeline", *export], cwd=ROOT, capture_output=True, text=True)
        assert said.returncode == 0, said.stderr
        assert "malformed" in said.stdout + said.stderr
        files = [pq.ParquetFile(path).read() for path in sorted(Path(to, "typed").glob("**/*.parquet"))]
        tables.append([str(row) for table in files for row in table.to_pylist()])
        assert "0 problems" in command("verify", *common)
        command("compact", "--topics", "typed", "--to", to)
    assert sorted(tables[0]) == sorted(tables[1])
    frame = spark.read.parquet(str(tmp_path / "arrow" / "typed"))
    wanted = [f.to_json(f.struct("seq", "n", "x", "d", "t", "`l t`", "o", "a", "m", "bin", "_corrupt_record"))]
    exported = sorted(each[0] for each in frame.select(*wanted).collect())
    assert exported == sorted(each[0] for each in read(spark, filled).select(*wanted).collect())
