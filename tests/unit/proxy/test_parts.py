"""The pure parts of the REST Proxy."""

from __future__ import annotations

import json
import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.proxy.assignment import by_range
from broker.proxy.errors import FormatMismatch, NotOffered, ProxyError, Unprocessable
from broker.proxy.formats import to_bytes, to_json
from broker.proxy.instance import Config, Instance
from broker.proxy.json_stream import Splitter
from broker.proxy.media import Format, read_as
from broker.proxy.patterns import compiled
from storage.errors import InvalidRequest

MEMBERS = st.dictionaries(
    st.sampled_from("abcd"), st.frozensets(st.sampled_from(["t", "u", "v"])), min_size=1, max_size=4
)


@given(MEMBERS, st.dictionaries(st.sampled_from(["t", "u"]), st.integers(1, 9)))
def test_every_subscribed_partition_has_one_owner(
    wishes: dict[str, frozenset[str]], partitions: dict[str, int]
) -> None:
    owned = by_range(wishes, {topic: range(count) for topic, count in partitions.items()})
    handed = [each for mine in owned.values() for each in mine]
    wanted = {topic for topics in wishes.values() for topic in topics}
    assert sorted(handed) == sorted(
        (topic, number) for topic, count in partitions.items() if topic in wanted for number in range(count)
    )
    for member, mine in owned.items():
        assert {topic for topic, _ in mine} <= wishes[member]
    for topic in wanted:
        sizes = [sum(each[0] == topic for each in owned[member]) for member in wishes if topic in wishes[member]]
        assert max(sizes) - min(sizes) <= 1


def test_the_first_members_have_the_longer_ranges() -> None:
    owned = by_range({"b": {"t"}, "a": {"t"}}, {"t": range(3)})
    assert owned == {"a": {("t", 0), ("t", 1)}, "b": {("t", 2)}}


@given(st.lists(st.dictionaries(st.text(), st.text() | st.lists(st.text()))), st.integers(1, 9), st.sampled_from(" \n"))
def test_objects_are_found_wherever_the_pieces_end(objects: list[dict[str, object]], size: int, between: str) -> None:
    texts = [json.dumps(each, ensure_ascii=False).encode() for each in objects]
    stream = between.encode().join(texts)
    splitter = Splitter(1 << 20)
    found = [each for at in range(0, len(stream), size) for each in splitter.feed(stream[at : at + size])]
    splitter.end()
    assert found == texts


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_the_splitter_raises_only_invalid_request(pieces: list[bytes]) -> None:
    splitter = Splitter(50)
    with suppress(InvalidRequest):
        for piece in pieces:
            splitter.feed(piece)
        splitter.end()


def test_an_object_has_a_longest_length() -> None:
    splitter = Splitter(10)
    with pytest.raises(InvalidRequest, match="longer than 10"):
        splitter.feed(b'{"a":"' + b"x" * 20)


@given(st.binary() | st.text().map(str.encode), st.sampled_from(list(Format)))
def test_all_stored_bytes_can_be_shown(value: bytes, format: Format) -> None:
    shown = to_json(format, value)
    json.loads(shown)
    if format is Format.BINARY:
        assert to_bytes(format, shown, "value") == value


@given(st.text())
def test_text_round_trips(text: str) -> None:
    assert to_bytes(Format.TEXT, to_json(Format.TEXT, text.encode()), "value") == text.encode()


@pytest.mark.parametrize(
    ("accept", "own", "expected"),
    [
        (None, None, "binary"),
        (b"*/*", Format.TEXT, "text"),
        (b"application/json", None, "json"),
        (b"application/json", Format.BINARY, "binary"),
        (b"application/vnd.kafka.v2+json", None, "binary"),
        (b"application/vnd.kafka.json.v2+json;q=0.2, application/vnd.kafka.text.v2+json;q=0.9", None, "text"),
        (b"application/vnd.kafka.binary.v2+json, */*;q=0.1", Format.JSON, "json"),
        (b"*/*, application/vnd.kafka.json.v2+json", None, "json"),
    ],
)
def test_the_read_format_follows_accept_and_the_instance(
    accept: bytes | None, own: Format | None, expected: str
) -> None:
    assert read_as(accept, own)[0] == expected


@pytest.mark.parametrize(
    ("accept", "own", "error"),
    [
        (b"application/vnd.kafka.json.v2+json", Format.BINARY, FormatMismatch),
        (b"application/vnd.kafka.avro.v2+json", Format.BINARY, FormatMismatch),
        (b"application/vnd.kafka.avro.v2+json", None, NotOffered),
        (b"text/html", None, NotOffered),
        (b"*/*;q=0", None, NotOffered),
    ],
)
def test_unavailable_formats_are_refused(accept: bytes, own: Format | None, error: type[ProxyError]) -> None:
    with pytest.raises(error):
        read_as(accept, own)


def test_instance_round_trips() -> None:
    instance = Instance(
        group="g",
        name="i",
        config=Config(format=Format.TEXT, reset="none", auto_commit=False, timeout_ms=5, min_bytes=7),
        topics=["t"],
        pattern="t.*",
        prefixes=["t"],
        known=["t"],
        chosen=[("t", 1)],
        positions={("t", 1): 5, ("t", 0): 7},
    )
    again = Instance.decode(instance.encode())
    assert again == instance
    assert list(again.positions) == [("t", 1), ("t", 0)]


@given(st.from_regex(r"[a-z.]{0,6}[*+?]?(\([a-z]\|[a-z]\))?[a-z.*]{0,4}", fullmatch=True), st.text("abc.-", max_size=9))
def test_accepted_pattern_matches_like_the_original(pattern: str, name: str) -> None:
    try:
        found = compiled(pattern)
    except Unprocessable:
        return
    assert bool(found.fullmatch(name)) == bool(re.fullmatch(pattern, name))
