"""Options as Spark passes them, and offsets as Kafka's users write them."""

from __future__ import annotations

import pytest

from pipeline.errors import BadOption
from pipeline.options import EARLIEST, LATEST, ReadOptions, first_seq, parse

PLACE = {"url": "http://there:1"}


def test_kafkas_names_are_understood() -> None:
    found = parse({"Kafka.Bootstrap.Servers": "a:1,b:2", "SUBSCRIBE": "x, y", "failondataloss": "FALSE"})
    assert (found.url, found.topics, found.fail_on_loss) == ("a:1", ("x", "y"), False)
    assert parse({**PLACE, "assign": '{"x":[0]}', "kafka.security.protocol": "PLAINTEXT"}).topics == ("x",)


def test_partitions_are_assigned_by_topic() -> None:
    found = parse({**PLACE, "assign": '{"y":[2,0,2],"x":[1]}'})
    assert (found.topics, found.assigned) == (("x", "y"), {"x": (1,), "y": (0, 2)})


def test_defaults() -> None:
    assert parse({**PLACE, "topic": "x"}) == ReadOptions(url="http://there:1", topics=("x",))


@pytest.mark.parametrize(
    ("options", "what"),
    [
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
        ({**PLACE, "topic": "x", "startingOffsets": "soon"}, "startingoffsets must be JSON"),
        ({**PLACE, "topic": "x", "startingOffsets": '{"x":7}'}, "earliest, latest, or JSON"),
        ({**PLACE, "topic": "x", "minPartitions": "-1"}, "must be an integer"),
        ({**PLACE, "topic": "x", "failOnDataLoss": "maybe"}, "true or false"),
        ({**PLACE, "topic": "x", "startingOffsets": "earliest", "startingTimestamp": "1"}, "exclude each other"),
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
