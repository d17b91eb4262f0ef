"""Reads the option valueSchema: Spark's DDL, or a JSON Schema. Pure; needs no Spark.

Source: docs/guides/spark.md#typed-columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pipeline.errors import BadOption
from topics_client.column_types import (
    MAX_DIGITS,
    SCALARS,
    Array,
    ColumnType,
    Decimal,
    Field,
    Map,
    Scalar,
    Struct,
    quoted,
)
from topics_client.json_schema import NotATable, struct_of

#: The longest name of a member that the parser can look for.
MAX_NAME_BYTES = 1024
#: The most types within types.
MAX_DEPTH = 64
_ALIASES = {
    "bool": "boolean",
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
}
_OTHERS = {
    "varchar": "use string",
    "char": "use string",
    "character": "use string",
    "variant": "use string, and parse_json in the query",
    "interval": "use string or bigint",
    "void": "leave the column out",
    "time": "use string",
}
#: A name in backticks, a text in quotes (a raw one has no escapes), a word, a comment, any other character.
_TOKEN = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)*`)"
    r"|(?P<string>[rR](?:'[^']*'|\"[^\"]*\")|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<word>\w+)|(?P<comment>--[^\r\n]*|/\*(?!\+).*?\*/)|(?P<sign>\S))",
    re.DOTALL,
)
#: What may follow `timestamp`.
_ZONES = {("without", "time", "zone"): "timestamp_ntz", ("with", "local", "time", "zone"): "timestamp"}


def parse_schema(text: str) -> tuple[Field, ...]:
    """The typed columns of a valueSchema. Raises BadOption, which says where the text is wrong."""
    try:
        fields = struct_of(text).fields if text.lstrip().startswith("{") else _Parser(text).table()
    except NotATable as error:
        raise BadOption(f"valueSchema: {error}") from error
    check_names(fields, "valueSchema")
    return fields


def with_zones(kind: ColumnType) -> ColumnType:
    """The type with `timestamp_ltz` for `timestamp`, which a session of Spark can take for another type
    (`spark.sql.timestampType`)."""
    if isinstance(kind, Array):
        return Array(with_zones(kind.element))
    if isinstance(kind, Map):
        return Map(with_zones(kind.value))
    if isinstance(kind, Struct):
        return Struct(tuple(Field(each.name, with_zones(each.type)) for each in kind.fields))
    return Scalar("timestamp_ltz") if str(kind) == "timestamp" else kind


def check_names(fields: Iterable[Field], where: str) -> None:
    """Raises BadOption for a name that is there twice: Spark does not tell upper from lower case."""
    seen: dict[str, str] = {}
    for field in fields:
        if (other := seen.get(field.name.lower())) is not None:
            both = f"{other} twice" if other == field.name else f"both {other} and {field.name}"
            raise BadOption(f"{where} has {both}. Spark does not tell upper from lower case: leave one out.")
        seen[field.name.lower()] = field.name
        if len(field.name.encode()) > MAX_NAME_BYTES:
            raise BadOption(f"{where} has a name of more than {MAX_NAME_BYTES} bytes: {field.name[:20]}…")
        _check_within(field.type, f"{where}: {field.name}")


def _check_within(kind: ColumnType, where: str) -> None:
    if isinstance(kind, Struct):
        check_names(kind.fields, where)
    elif isinstance(kind, Array):
        _check_within(kind.element, where)
    elif isinstance(kind, Map):
        _check_within(kind.value, where)


class _Parser:
    """Reads one DDL."""

    def __init__(self, text: str) -> None:
        self._text = text
        #: (offset, kind, token); the kinds are quoted, word, string and sign.
        self._tokens: list[tuple[int, str, str]] = []
        for match in _TOKEN.finditer(text):
            if (kind := match.lastgroup) and kind != "comment":
                self._tokens.append((match.start(kind), kind, match[kind]))
        self._at = 0
        self._depth = 0
        #: The names of the column and its members whose type is being read.
        self._within: list[str] = []

    def table(self) -> tuple[Field, ...]:
        """All columns; a whole `struct<…>` counts as its fields."""
        if self._is_word("struct") and self._peek(1) == "<":
            kind = self._type()
            fields = kind.fields if isinstance(kind, Struct) else ()
        else:
            fields = self._fields() if self._tokens else ()
        if self._at < len(self._tokens):
            raise self._wrong("a comma or the end")
        if not fields:
            raise BadOption("valueSchema has no columns; write for example: id bigint, item string.")
        return fields

    def _fields(self) -> tuple[Field, ...]:
        found: list[Field] = []
        while not found or self._take(","):
            name = self._name()
            self._within.append(name)
            self._take(":")
            found.append(Field(name, self._type()))
            self._attributes()
            self._within.pop()
        return tuple(found)

    def _attributes(self) -> None:
        # Typed columns are nullable, whatever a DDL promises: a value may lack any member.
        if self._is_word("not"):
            self._at += 1
            if not self._is_word("null"):
                raise self._wrong("NULL")
            self._at += 1
        if self._is_word("comment"):
            self._at += 1
            if self._kind() != "string":
                raise self._wrong("a text in quotes")
            while self._kind() == "string":
                self._at += 1

    def _name(self) -> str:
        kind, token = self._kind(), self._peek()
        if kind not in ("quoted", "word"):
            raise self._wrong("the name of a column")
        self._at += 1
        return token[1:-1].replace("``", "`") if kind == "quoted" else token

    def _type(self) -> ColumnType:
        if self._kind() != "word":
            raise self._wrong("a type")
        word = self._peek().lower()
        word = _ALIASES.get(word, word)
        if word in _OTHERS:
            raise self._bad(f"{self._peek()} is not a type of typed columns: {_OTHERS[word]}.")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._bad(f"types are nested more than {MAX_DEPTH} deep.")
        self._at += 1
        found = self._rest_of(word)
        self._depth -= 1
        return found

    def _rest_of(self, word: str) -> ColumnType:
        if word in SCALARS:
            return self._scalar(word)
        if word in ("decimal", "dec", "numeric"):
            return self._decimal()
        if word not in ("array", "map", "struct"):
            self._at -= 1
            raise self._wrong(f"a type ({', '.join((*SCALARS, 'decimal, array, map or struct'))})")
        self._expect("<")
        if word == "array":
            found: ColumnType = Array(self._type())
        elif word == "map":
            if self._type() != Scalar("string"):
                raise self._bad("the keys of a map are strings, as in JSON: write map<string, …>.")
            self._expect(",")
            found = Map(self._type())
        else:
            found = Struct(self._fields())
        self._expect(">")
        return found

    def _scalar(self, name: str) -> Scalar:
        # Spark has the long names only for `timestamp`, not for `timestamp_ltz`.
        if self._tokens[self._at - 1][2].lower() == "timestamp":
            for words, other in _ZONES.items():
                if all(self._is_word(word, ahead) for ahead, word in enumerate(words)):
                    self._at += len(words)
                    return Scalar(other)
        if name == "string" and self._is_word("collate"):
            self._at += 1
            if not self._is_word("utf8_binary"):
                raise self._bad("typed columns have no collation but UTF8_BINARY: leave COLLATE out.")
            self._at += 1
        return Scalar(name)

    def _decimal(self) -> Decimal:
        if not self._take("("):
            return Decimal(10, 0)
        precision, scale = self._number(), 0
        if self._take(","):
            scale = self._number()
        self._expect(")")
        if not 0 <= scale <= precision <= MAX_DIGITS or precision < 1:
            raise self._bad(
                f"decimal({precision},{scale}) must have 1 to {MAX_DIGITS} digits, and not more behind the point."
            )
        return Decimal(precision, scale)

    def _number(self) -> int:
        if not (self._peek().isascii() and self._peek().isdecimal()):
            raise self._wrong("a number")
        self._at += 1
        return int(self._tokens[self._at - 1][2])

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at][2] if at < len(self._tokens) else ""

    def _kind(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at][1] if at < len(self._tokens) else ""

    def _is_word(self, word: str, ahead: int = 0) -> bool:
        return self._kind(ahead) == "word" and self._peek(ahead).lower() == word

    def _take(self, sign: str) -> bool:
        found = self._kind() == "sign" and self._peek() == sign
        self._at += found
        return found

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise self._wrong(sign)

    def _bad(self, what: str) -> BadOption:
        within = ".".join(map(quoted, self._within))
        return BadOption(": ".join(filter(None, ("valueSchema", within, what))))

    def _wrong(self, wanted: str) -> BadOption:
        if self._at >= len(self._tokens):
            return BadOption(f"valueSchema ends where {wanted} should be: {self._text!r}.")
        offset, _, token = self._tokens[self._at]
        return self._bad(f"{wanted} should be where {token!r} is (character {offset + 1}).")
