"""Declared messages, compared with kafka-python's own schemas, and bytes that are not messages."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import tracemalloc
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.kafka.apis import APIS, Api, ApiKey
from broker.kafka.codec.schema import Message, Part, decode, encode
from broker.kafka.codec.wire import MAX_ELEMENTS, Malformed, Reader, Writer
from tests.unit.kafka.random_messages import filled

AREAS = (
    "configs", "groups", "metadata", "offsets", "positions", "session", "share", "topics",
)  # fmt: skip
#: Messages that kafka-python does not know: see `test_share_messages`, and `tests/kafka/java/test_schemas.py`.
UNKNOWN_TO_OTHERS = "Share"
OTHERS = ("admin", "consumer", "metadata", "producer", "sasl")


def declared() -> dict[str, type[Message]]:
    modules = [importlib.import_module(f"broker.kafka.messages.{area}") for area in AREAS]
    return {
        name: kind
        for module in modules
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and issubclass(kind, Message) and kind is not Message
    }


def theirs(name: str) -> Any:
    """kafka-python's class of that name."""
    for area in OTHERS:
        module: ModuleType = importlib.import_module(f"kafka.protocol.{area}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AssertionError(f"kafka-python knows no {name}")


MESSAGES = declared()
REQUESTS = {name: kind for name, kind in MESSAGES.items() if name.endswith("Request")}


def api_of(name: str) -> Api:
    bare = name.removesuffix("Request").removesuffix("Response")
    return next(api for api in APIS.values() if api.key.name.replace("_", "").lower() == bare.lower())


CASES = [
    (name, version)
    for name in MESSAGES
    if UNKNOWN_TO_OTHERS not in name
    for version in range(api_of(name).first, api_of(name).last + 1)
]


def test_every_api_except_produce_and_fetch_has_both_messages_declared() -> None:
    keys = {api_of(name).key for name in MESSAGES}
    assert set(APIS) - keys == {ApiKey.PRODUCE, ApiKey.FETCH}
    assert len(MESSAGES) == 2 * len(keys)


@pytest.mark.parametrize(("name", "version"), CASES)
def test_encoding_equals_another_implementation(name: str, version: int) -> None:
    kind, other = MESSAGES[name], theirs(name)
    for seed in range(5):
        message: Any = filled(kind, version, seed)
        if name == "ApiVersionsResponse":
            message.error_code = 0  # with an error they are read as version 0
        written = encode(message, version)
        again = other.decode(written, version=version)
        again._header = None  # which `decode` leaves out, and `encode` uses
        rewritten = bytes(again.encode(version=version))
        assert rewritten == written
        assert encode(decode(kind, version, written), version) == written


@pytest.mark.parametrize(("name", "version"), CASES)
def test_flexible_from_the_same_version_on(name: str, version: int) -> None:
    flexible = version >= MESSAGES[name].flexible_since
    assert flexible == (version >= api_of(name).flexible_since)
    assert flexible == theirs(name).flexible_version_q(version)


@given(st.data())
def test_random_bytes_are_a_message_or_malformed(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(MESSAGES)))
    api = api_of(name)
    version = data.draw(st.integers(api.first, api.last))
    frame = data.draw(st.binary(max_size=200))
    with contextlib.suppress(Malformed):
        decode(MESSAGES[name], version, frame)


@given(st.data())
def test_a_message_with_changed_bytes_is_a_message_or_malformed(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(MESSAGES)))
    api = api_of(name)
    version = data.draw(st.integers(api.first, api.last))
    frame = bytearray(encode(filled(MESSAGES[name], version, data.draw(st.integers(0, 99))), version))
    for _ in range(data.draw(st.integers(1, 4))):
        if frame:
            frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(frame)))
    try:
        made = decode(MESSAGES[name], version, frame[:cut] if data.draw(st.booleans()) else frame)
    except Malformed:
        return
    assert isinstance(made, Part)


@pytest.mark.parametrize("count", [1 << 30, 0x7FFFFFFF, MAX_ELEMENTS + 1])
def test_an_announced_array_takes_no_memory(count: int) -> None:
    frame = count.to_bytes(4, "big") + bytes(1000)
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            Reader(frame).array(Reader.int64)
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()


def test_arrays_within_arrays_are_bounded_together() -> None:
    inner = (1000).to_bytes(4, "big") + bytes(1000)
    frame = (MAX_ELEMENTS // 1000).to_bytes(4, "big") + inner * (MAX_ELEMENTS // 1000)
    reader = Reader(frame)
    with pytest.raises(Malformed, match="array elements"):
        reader.array(lambda each: each.array(Reader.int8))


@pytest.mark.parametrize("length", [-2, -(1 << 31)])
def test_a_length_below_null_is_malformed(length: int) -> None:
    with pytest.raises(Malformed):
        Reader(length.to_bytes(4, "big", signed=True)).data()


@example(0)
@example(127)
@example(128)
@example((1 << 32) - 1)
@given(st.integers(0, (1 << 32) - 1))
def test_varints_round_trip(value: int) -> None:
    writer = Writer()
    writer.varint(value)
    assert Reader(writer.done()).varint() == value


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x80\x01"])
def test_an_invalid_varint_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        Reader(data).varint()


def test_a_string_outside_utf8_is_malformed() -> None:
    with pytest.raises(Malformed, match="UTF-8"):
        Reader(b"\0\2\xff\xfe").string()


def test_unexpected_null_is_malformed() -> None:
    kind = MESSAGES["FindCoordinatorRequest"]
    with pytest.raises(Malformed, match=r"FindCoordinatorRequest\.key is null"):
        decode(kind, 0, b"\xff\xff")
