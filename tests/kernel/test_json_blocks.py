"""Members of text that is known to be JSON: the compiled kernel looks at 64 bytes at a time, by code for some machines
and by code for any."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from types import ModuleType

import pytest

from kernel import JsonKind
from tests.kernel.test_json_columns import laid

NAMES = (b"a", b"id", b"", "é".encode(), b"n" * 61, b"m" * 62, b'qu"ote', b"b", b"list")
#: Requested at once: of few sizes, of many, too long for a shift, none.
ASKED = (NAMES[:1], NAMES[:2], NAMES, NAMES[4:5], NAMES[5:6], NAMES[6:], ())
#: Members whose characters mean something elsewhere.
ODD = [
    r'"a":"\\"', r'"a":"\\\""', r'"b":"\\\\\\"', r'"b":"{[\":,]}"', '"a" : 1', '"id"\t:\n-2.5e-7 ', r'"\u0061":2',
    r'"qu\"ote":true', '"":null', '"é":"Zürich 🦉"', '"list":[]', '"list":[{"a":[":"]},{}]', '"id":{"id":{"a":"}"}}',
    '"b":{"a":1,"list":[[[]]]}', '"x":":"', '"y":["\\"]","a"]', f'"{"n" * 61}":1', f'"{"m" * 62}":{{"a":0}}',
    f'"a":{10**70}', f'"id":"{"long" * 40}"', f'"list":[{",".join(map(str, range(60)))}]', f'"z":"{"é" * 40}"',
]  # fmt: skip


@pytest.fixture(params=["compiled", "portable"])
def code(request: pytest.FixtureRequest) -> ModuleType:
    return request.getfixturevalue(request.param)


def assert_same_without_checks(code: ModuleType, texts: list[bytes]) -> None:
    buffer, starts, ends = laid(texts)
    for names in ASKED:
        expected = code.json_members(buffer, starts, ends, names, False)
        assert expected[0] == bytes([JsonKind.OBJECT]) * len(texts)
        assert code.json_members(buffer, starts, ends, names, True) == expected


@pytest.mark.parametrize("member", ODD)
def test_members_at_every_distance_from_the_border_of_a_block(code: ModuleType, member: str) -> None:
    texts = [
        f'{{"p":"{"x" * size}",{member},{other}}}'.encode()
        for size in range(70)
        for other in (r'"b":"\\\""', '"a":[7]')
    ]
    assert json.loads(texts[0])
    assert_same_without_checks(code, texts)


def some_texts(choice: random.Random) -> Iterator[bytes]:
    for _ in range(300):
        members = choice.choices(ODD, k=choice.randrange(12))
        spaces = choice.choice(("", " ", "\n" * 63))
        yield (spaces + "{" + f"{spaces},".join(members) + "}" + spaces).encode()


@pytest.mark.parametrize("seed", range(4))
def test_members_in_any_order(code: ModuleType, seed: int) -> None:
    assert_same_without_checks(code, list(some_texts(random.Random(seed))))


def test_what_is_not_json_stays_within_its_row(code: ModuleType) -> None:
    """Found members are pieces of their row, whatever the text is."""
    choice = random.Random(7)
    for text in some_texts(choice):
        broken = bytearray(text)
        for _ in range(3):
            broken[choice.randrange(len(broken))] = choice.choice(b'"\\{}[]:,a\xff')
        buffer, starts, ends = laid([bytes(broken[: choice.randrange(len(broken))]), bytes(broken), b'{"a":1}'])
        kinds, begins, stops, _ = code.json_members(buffer, starts, ends, [b"a", b"id"], True)
        rows = [memoryview(each).cast("Q").tolist() for each in (starts, ends)]
        for column in range(2):
            found = [memoryview(each)[column * 24 : column * 24 + 24].cast("Q").tolist() for each in (begins, stops)]
            for start, end, begin, stop in zip(*rows, *found, strict=True):
                assert (begin, stop) == (0, 0) or start < begin <= stop <= end
        assert kinds[2] == JsonKind.OBJECT


def test_a_requested_value_is_nested_at_most_1024_deep(code: ModuleType) -> None:
    for depth, kind in ((1023, JsonKind.OBJECT), (1024, JsonKind.NONE)):
        buffer, starts, ends = laid([b'{"a":' + b"[" * depth + b"]" * depth + b"}"])
        for sure in (False, True):
            assert code.json_members(buffer, starts, ends, [b"a"], sure)[0] == bytes([kind])
