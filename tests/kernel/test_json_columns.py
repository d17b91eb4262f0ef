"""Members and elements of JSON text, and their values as columns, compared with Python's json module."""

from __future__ import annotations

import json
import random
from array import array
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernel
from kernel import JsonColumn, JsonKind, Moment
from tests.kernel.samples import values

pytestmark = pytest.mark.usefixtures("twin")

NAMES = ("a", "b", "data", "é", 'qu"ote', "", "long" * 9)
_KIND = {type(None): "NULL", bool: "", int: "INTEGER", float: "NUMBER", str: "TEXT", list: "ARRAY", dict: "OBJECT"}


def u64(numbers: Sequence[int]) -> bytes:
    return array("Q", numbers).tobytes()


def laid(texts: Sequence[bytes]) -> tuple[bytes, bytes, bytes]:
    """The texts in one buffer, with something between them, and their starts and ends."""
    buffer, starts, ends = bytearray(b'{"'), list[int](), list[int]()
    for text in texts:
        starts.append(len(buffer))
        buffer += text
        ends.append(len(buffer))
        buffer += b'"]}'
    return bytes(buffer), u64(starts), u64(ends)


def members(texts: Sequence[bytes], names: Sequence[str] = NAMES) -> tuple[bytes, kernel.JsonMembers]:
    buffer, starts, ends = laid(texts)
    return buffer, kernel.json_members(buffer, starts, ends, [name.encode() for name in names])


def pieces(buffer: bytes, column: JsonColumn) -> list[tuple[JsonKind, bytes]]:
    starts, ends = array("Q", bytes(column.starts)), array("Q", bytes(column.ends))
    return [
        (JsonKind(kind), buffer[start:end]) for kind, start, end in zip(bytes(column.kinds), starts, ends, strict=True)
    ]


def plainly(kind: JsonKind, text: bytes) -> Any:
    """The value of a piece."""
    return json.loads(b'"' + text + b'"' if kind in (JsonKind.TEXT, JsonKind.ESCAPED) else text)


def kind_of(value: Any) -> JsonKind:
    if isinstance(value, bool):
        return JsonKind.TRUE if value else JsonKind.FALSE
    return JsonKind[_KIND[type(value)]]


def column_of(texts: Sequence[bytes]) -> tuple[bytes, JsonColumn]:
    """The texts as the members of objects."""
    buffer, found = members([b'{"a":' + text + b"}" for text in texts], ["a"])
    return buffer, found.members[0]


objects = st.dictionaries(st.sampled_from([*NAMES, "other"]), values.map(json.loads), max_size=7)
spaced = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:\r ")])


@given(st.lists(st.tuples(st.one_of(objects, values.map(json.loads)), spaced, st.booleans()), max_size=5))
def test_members_are_those_that_python_finds(rows: list[tuple[Any, tuple[str, str], bool]]) -> None:
    texts = [json.dumps(value, separators=how, ensure_ascii=ascii).encode() for value, how, ascii in rows]
    buffer, found = members(texts)
    for row, (value, _, _) in enumerate(rows):
        kind = JsonKind(found.kinds[row])
        assert (JsonKind.TEXT if kind == JsonKind.ESCAPED else kind) == kind_of(value)
        for name, column in zip(NAMES, found.members, strict=True):
            kind, text = pieces(buffer, column)[row]
            if not isinstance(value, dict) or name not in value:
                assert (kind, text) == (JsonKind.NONE, b"")
                continue
            assert plainly(kind, text) == value[name]
            assert kind_of(value[name]) == (JsonKind.TEXT if kind == JsonKind.ESCAPED else kind)


@given(st.lists(st.tuples(st.one_of(objects, values.map(json.loads)), spaced, st.booleans()), max_size=5))
def test_members_of_text_that_is_known_to_be_json_are_the_same(
    rows: list[tuple[Any, tuple[str, str], bool]],
) -> None:
    texts = [json.dumps(value, separators=how, ensure_ascii=ascii).encode() for value, how, ascii in rows]
    buffer, starts, ends = laid(texts)
    for names in ([], [b"a"], [name.encode() for name in NAMES]):
        expected = kernel.json_members(buffer, starts, ends, names)
        assert kernel.json_members(buffer, starts, ends, names, sure=True) == expected


@pytest.mark.parametrize("value", ['{"a":1,"b":[{"x":"]}"}]}', r'{"b":"\\","a":"\""}', "7", '"x"', "[1]", "null", "{}"])
@pytest.mark.parametrize("behind", [b',"meta":{"a":2}', b",", b"}", b"]", b'"', b"0x", b"\x00"])
def test_what_is_behind_text_that_is_known_to_be_json_is_noticed(value: str, behind: bytes) -> None:
    buffer, starts, ends = laid([value.encode() + behind, value.encode() + b" \n"])
    found = kernel.json_members(buffer, starts, ends, [b"a", b"c"], sure=True)
    first, second = map(JsonKind, found.kinds)
    assert first == JsonKind.NONE
    assert (JsonKind.TEXT if second == JsonKind.ESCAPED else second) == kind_of(json.loads(value))
    assert pieces(buffer, found.members[0])[0] == (JsonKind.NONE, b"")


@given(st.lists(st.one_of(objects, values.map(json.loads)), max_size=5))
def test_elements_are_those_that_python_finds(rows: list[Any]) -> None:
    buffer, starts, ends = laid([json.dumps(value, separators=(" , ", ":")).encode() for value in rows])
    found = kernel.json_elements(buffer, starts, ends)
    expected = [
        [*value.items()]
        if isinstance(value, dict)
        else [(None, each) for each in value]
        if isinstance(value, list)
        else []
        for value in rows
    ]
    assert array("Q", found.counts).tolist() == [len(each) for each in expected]
    names = [None if kind == JsonKind.NONE else plainly(kind, text) for kind, text in pieces(buffer, found.names)]
    elements = [plainly(kind, text) for kind, text in pieces(buffer, found.elements)]
    assert list(zip(names, elements, strict=True)) == [pair for each in expected for pair in each]


@given(st.one_of(values, st.binary(max_size=30)), st.randoms(use_true_random=False))
def test_changed_text_is_json_if_python_says_so(text: bytes, choice: random.Random) -> None:
    changed = bytearray(text)
    for _ in range(choice.choice((0, 1, 2))):
        at = choice.randrange(len(changed) + 1)
        changed[at : at + choice.choice((0, 1))] = choice.choice(
            (b"", b"0", b"-", b".", b"e", b'"', b"\\", b"]", b",", b"\xc3")
        )
    try:
        # Python also accepts NaN and Infinity.
        json.loads(bytes(changed).decode(), parse_constant=lambda _: 1 / 0)
        sound = True
    except (ValueError, ZeroDivisionError):
        sound = False
    _, found = members([bytes(changed)])
    assert (found.kinds[0] != JsonKind.NONE) == sound


@pytest.mark.parametrize(
    "text",
    [
        b'', b' ', b'nul', b'nulls', b'tru', b'-', b'01', b'1.', b'.5', b'+1', b'1e', b'1e+', b'NaN',
        b'Infinity', b'"', b'"\\', b'"\\u12', b'"\\u12g4"', b'"\\x"', b'"\n"', b'"\xff"', b'\xef\xbb\xbf1',
        b"'a'", b'[', b'[1', b'[1,', b'[1,]', b'[,1]', b'[1 2]', b'{', b'{"a"', b'{"a":', b'{"a":1',
        b'{"a":1,', b'{"a":1,}', b'{1:2}', b'{"a" 1}', b'[1}', b'{"a":1]', b'1 2', b'{}x',
        b'{"a":[{"b":nope}]}',
    ],
)  # fmt: skip
def test_what_is_not_json_is_nothing(text: bytes) -> None:
    _, found = members([b"{}", text, b"[]"])
    assert bytes(found.kinds) == bytes([JsonKind.OBJECT, JsonKind.NONE, JsonKind.ARRAY])
    buffer, inner = members([b'{"b":1,"a":' + text + b"}"])
    assert inner.kinds == bytes([JsonKind.NONE])
    assert {piece for column in inner.members for piece in pieces(buffer, column)} == {(JsonKind.NONE, b"")}


@pytest.mark.parametrize("brackets", [(b"[", b"]"), (b'{"a":', b"}")])
def test_text_is_nested_at_most_1024_deep(brackets: tuple[bytes, bytes]) -> None:
    opening, closing = brackets
    for depth, sound in ((1024, True), (1025, False)):
        text = opening * depth + b"1" + closing * depth
        _, found = members([text])
        assert (found.kinds[0] != JsonKind.NONE) == sound
        buffer, starts, ends = laid([text])
        assert kernel.json_members(buffer, starts, ends, [b"b"], sure=True).kinds == found.kinds
        assert array("Q", kernel.json_elements(buffer, starts, ends).counts).tolist() == [int(sound)]


def test_the_last_of_two_members_of_a_name_counts() -> None:
    buffer, found = members([b'{"a":1,"b":2,"a":[3]}', b'{"\\u0061":4,"b":5}', b'{"a":4,"\\u0061":null}'])
    assert [text for _, text in pieces(buffer, found.members[0])] == [b"[3]", b"4", b"null"]


def test_a_name_has_at_most_1024_bytes() -> None:
    longest = "n" * 1024
    buffer, found = members([b'{"' + b"\\u006e" * 1024 + b'":7}', b'{"' + longest.encode() + b'":8}'], [longest])
    assert [text for _, text in pieces(buffer, found.members[0])] == [b"7", b"8"]
    with pytest.raises(ValueError, match="1024 bytes"):
        members([b"{}"], [longest + "n"])


@pytest.mark.parametrize("span", [(1, 0), (0, 4), (4, 5), ((1 << 64) - 1, 0), (0, (1 << 64) - 1)])
def test_rows_outside_the_buffer_are_refused(span: tuple[int, int]) -> None:
    starts, ends = u64([span[0]]), u64([span[1]])
    column = JsonColumn(starts, ends, bytes([JsonKind.TEXT]))
    for call in (
        lambda: kernel.json_members(b"[1]", starts, ends, []),
        lambda: kernel.json_elements(b"[1]", starts, ends),
        lambda: kernel.json_texts(b"[1]", column),
        lambda: kernel.json_integers(b"[1]", column, 63),
        lambda: kernel.json_decimals(b"[1]", column, 38, 0),
        lambda: kernel.json_moments(b"[1]", column),
    ):
        with pytest.raises(ValueError, match="outside the buffer"):
            call()


def test_columns_must_have_the_same_length() -> None:
    with pytest.raises(ValueError, match="ends"):
        kernel.json_members(b"1", u64([0, 0]), u64([1]), [])
    with pytest.raises(ValueError, match="kinds"):
        kernel.json_texts(b"1", JsonColumn(u64([0]), u64([1]), b""))


@given(st.lists(st.one_of(st.text(max_size=20), st.sampled_from(["\ud800", "a\udfffb", "\ud83d\ude00"])), max_size=6))
def test_texts_are_those_that_python_decodes(texts: list[str]) -> None:
    escaped = [json.dumps(text).encode() for text in texts]
    buffer, column = column_of(escaped)
    offsets, text, fits = kernel.json_texts(buffer, column)
    ends = array("i", offsets).tolist()
    for row, each in enumerate(escaped):
        value = json.loads(each)
        is_text = not any(0xD800 <= ord(character) < 0xE000 for character in value)
        assert fits[row] == is_text
        assert text[ends[row] : ends[row + 1]] == (value.encode() if is_text else b"")


def test_other_values_than_texts_are_shown_as_written() -> None:
    shown = [b"1.50", b"true", b"null", b'{"b" : [1 , 2]}', b'[ "x\\n" ]', b"-0"]
    buffer, column = column_of(shown)
    offsets, text, fits = kernel.json_texts(buffer, column)
    assert text == b"".join(each for each in shown if each != b"null")
    assert fits == b"\1" * len(shown)
    assert array("i", offsets)[3] == array("i", offsets)[2]


@pytest.mark.parametrize("bits", [7, 15, 31, 63])
def test_integers_fit_their_bits(bits: int) -> None:
    end = 1 << bits
    numbers = [0, 1, -1, end - 1, -end, end, -end - 1, 10 * end, 1 << 64, -(1 << 64), 10**30]
    texts = [b"%d" % number for number in numbers] + [b"-0", b"1.0", b"1e2", b'"1"', b"true", b"null", b"[1]"]
    buffer, column = column_of(texts)
    found, fits = kernel.json_integers(buffer, column, bits)
    good = [-end <= number < end for number in numbers] + [True] + [False] * 6
    assert list(map(bool, fits)) == good
    assert array("q", found).tolist() == [
        number if fit else 0 for number, fit in zip([*numbers, *[0] * 7], good, strict=True)
    ]


numerals = st.from_regex(r"\A-?(0|[1-9][0-9]{0,44})(\.[0-9]{1,45})?([eE][+-]?[0-9]{1,3})?\Z")
precisions = st.integers(1, 38).flatmap(lambda precision: st.tuples(st.just(precision), st.integers(0, precision)))


def decimal_of(text: str, precision: int, scale: int) -> int | None:
    """The number times 10**scale, by Python's decimal module."""
    with localcontext(prec=2000, Emin=-9999, Emax=9999) as context:
        context.rounding = ROUND_HALF_UP
        number = int(Decimal(text).scaleb(scale).to_integral_value())
    return number if abs(number) < 10**precision else None


@given(st.lists(numerals, max_size=5), precisions)
def test_decimals_are_exact(texts: list[str], kind: tuple[int, int]) -> None:
    written = [text.encode() for text in texts] + [b'"%b"' % text.encode() for text in texts]
    buffer, column = column_of(written)
    found, fits = kernel.json_decimals(buffer, column, *kind)
    expected = [decimal_of(text, *kind) for text in texts] * 2
    assert list(map(bool, fits)) == [number is not None for number in expected]
    assert [int.from_bytes(found[at : at + 16], "little", signed=True) for at in range(0, len(found), 16)] == [
        number or 0 for number in expected
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"0.005", 1), (b"0.0049999999999999999999999999", 0), (b"-0.005", -1), (b"9999999.994", 999999999),
        (b"9999999.995", None), (b"1e7", None), (b"1e-99999999999999999999", 0), (b"1e99999999999999999999", None),
        (b"0e99999999999999999999", 0), (b"12345678901234567890123456789012345678901", None), (b"0.5e-2", 1),
        (b"1E2", 10000),
        (b'"1.5"', 150), (b'" 1"', None), (b'"1."', None), (b'".5"', None), (b'"+1"', None), (b'"01"', None),
        (b'""', None),
        (b'"-"', None), (b'"1e"', None), (b'"0x1"', None), (b'"\\u0031"', None), (b"true", None), (b"[1]", None),
    ],
)  # fmt: skip
def test_decimals_round_half_up_or_do_not_fit(text: bytes, expected: int | None) -> None:
    buffer, column = column_of([text])
    found, fits = kernel.json_decimals(buffer, column, 9, 2)
    assert bool(fits[0]) == (expected is not None)
    assert int.from_bytes(found, "little", signed=True) == (expected or 0)


def test_sizes_of_numbers_are_checked() -> None:
    column = JsonColumn(b"", b"", b"")
    for bits in (0, 6, 64):
        with pytest.raises(ValueError, match="7 to 63"):
            kernel.json_integers(b"", column, bits)
    for precision, scale in ((0, 0), (39, 0), (5, 6), (5, -1)):
        with pytest.raises(ValueError, match="1 to 38"):
            kernel.json_decimals(b"", column, precision, scale)


def test_large_buffers_have_the_same_result() -> None:
    texts = [b'{"b":%d,"a":"%b"}' % (number, b"x" * (number % 90)) for number in range(3000)]
    buffer, found = members(texts)
    assert found.kinds == bytes([JsonKind.OBJECT]) * 3000
    numbers, fits = kernel.json_integers(buffer, found.members[1], 63)
    assert array("q", numbers).tolist() == list(range(3000))
    assert fits == b"\1" * 3000
    assert kernel.json_texts(buffer, found.members[0])[1] == b"".join(b"x" * (number % 90) for number in range(3000))
    _, starts, ends = laid(texts)
    assert array("Q", kernel.json_elements(buffer, starts, ends).counts).tolist() == [2] * 3000


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
zones = st.one_of(
    st.none(), st.just(UTC), st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
)


def moments(texts: Sequence[str]) -> list[tuple[int, Moment]]:
    buffer, column = column_of([json.dumps(text).encode() for text in texts])
    micros, found = kernel.json_moments(buffer, column)
    return list(zip(array("q", micros).tolist(), map(Moment, found), strict=True))


@given(st.datetimes(timezones=zones), st.sampled_from(["T", " "]), st.sampled_from(["auto", "seconds", "milliseconds"]))
def test_times_are_those_that_python_reads(moment: datetime, separator: str, digits: str) -> None:
    text = moment.isoformat(separator, digits)
    if 1 < moment.year < 9999:
        at = datetime.fromisoformat(text)
        expected = (at if at.tzinfo else at.replace(tzinfo=UTC)) - EPOCH
        kind = Moment.ZONED if moment.tzinfo else Moment.LOCAL
        assert moments([text]) == [(expected // timedelta(microseconds=1), kind)]
    else:
        assert moments([text])[0][1] in (Moment.NONE, Moment.ZONED, Moment.LOCAL)
    date = moment.date().isoformat()
    assert moments([date]) == [((moment.date() - EPOCH.date()) // timedelta(microseconds=1), Moment.DATE)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00", (0, Moment.LOCAL)), ("1970-01-01t00:00z", (0, Moment.ZONED)),
        ("1970-01-01 01:00+01", (0, Moment.ZONED)), ("1970-01-01T01:30+0130", (0, Moment.ZONED)),
        ("1970-01-01T00:00:00.1234567Z", (123456, Moment.ZONED)), ("1970-01-01T00:00:00.5", (500000, Moment.LOCAL)),
        ("2024-02-29", (19782 * 86_400_000_000, Moment.DATE)),
        *((text, (0, Moment.NONE)) for text in (
            "", "2023-02-29", "1900-02-29", "2024-13-01", "2024-00-01", "2024-01-32", "2024-1-1", "24-01-01",
            "20240101", "0000-01-01", "2024-01-01T", "2024-01-01T24:00", "2024-01-01T10", "2024-01-01T10:60",
            "2024-01-01T10:00:60",
            "2024-01-01T10:00.5", "2024-01-01T10:00:00.", "2024-01-01T10:00:00.1234567890", "2024-01-01T10:00 ",
            "2024-01-01T10:00ZZ", "2024-01-01T10:00+24:00", "2024-01-01T10:00+1:00", "2024-01-01T10:00+01:60",
            "2024-01-01T10:00+01:", "2024-01-01Z", "0001-01-01T00:00+00:01", "9999-12-31T23:59-00:01",
            "2024-01-01T10:00 Europe/Berlin",
        )),
    ],
)  # fmt: skip
def test_what_is_a_time(text: str, expected: tuple[int, Moment]) -> None:
    assert moments([text]) == [expected]


def test_only_texts_without_escapes_are_times() -> None:
    buffer, column = column_of([b"1", b"null", b'"2024\\u002d01-01"', b'["2024-01-01"]'])
    assert kernel.json_moments(buffer, column) == (bytes(32), bytes(4))
