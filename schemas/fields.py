"""Field types shared by the models: integers as JSON has them, and how null is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue

from schemas.names import TOPIC_NAME_PATTERN

MAX_U64 = 2**64 - 1
#: Counted from 0.
MAX_PARTITION = 1023
#: How long a job may be put off: 366 days.
MAX_DELAY_MS = 366 * 86_400_000

#: strict: true, "1" and 1.5 are not integers.
U64 = Annotated[int, Field(strict=True, ge=0, le=MAX_U64)]
I32 = Annotated[int, Field(strict=True, ge=-(2**31), le=2**31 - 1)]
Flag = Annotated[bool, Field(strict=True)]


def parse_u64(text: str) -> int:
    """A u64 as a path or query has it: digits only. Raises ValueError."""
    # isascii: str.isdigit also takes digits of other scripts. The length first: int() of very long text is slow.
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= MAX_U64):
        raise ValueError(f"expected an integer from 0 to {MAX_U64}")
    return int(text)


def parse_flag(text: str) -> bool:
    """A boolean as a query has it: true or false, 1 or 0. Raises ValueError."""
    if text in ("true", "1"):
        return True
    if text in ("false", "0"):
        return False
    raise ValueError("expected true or false")


def _from_text(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: parse(value) if isinstance(value, str) else value


QueryU64 = Annotated[
    int,
    BeforeValidator(_from_text(parse_u64)),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MAX_U64}),
]
QueryFlag = Annotated[bool, BeforeValidator(_from_text(parse_flag))]

#: Any JSON value, kept and given back byte for byte. An empty schema: the value may be of any type.
JsonValue = Annotated[Any, WithJsonSchema({"description": "Any JSON value, given back byte for byte."})]

TagPredicate = Annotated[
    Any,
    WithJsonSchema(
        {
            "description": 'A tag: "x" or ["tag","Eq","x"] for equal, ["tag","Glob","x*"] for beginning with x. '
            "A plain one has no *.",
            "anyOf": [
                {"type": "string", "pattern": "^[^*]*$"},
                {
                    "type": "array",
                    "prefixItems": [{"const": "tag"}, {"const": "Eq"}, {"type": "string"}],
                    "minItems": 3,
                    "maxItems": 3,
                },
                {
                    "type": "array",
                    "prefixItems": [
                        {"const": "tag"},
                        {"const": "Glob"},
                        {"type": "string", "pattern": r"^[^*]*\*$"},
                    ],
                    "minItems": 3,
                    "maxItems": 3,
                },
            ],
        }
    ),
]


#: A topic's name in a field: `broker.service` decides, and says what names are.
NameOfTopic = Annotated[str, WithJsonSchema({"type": "string", "pattern": TOPIC_NAME_PATTERN})]
#: In queries, where an empty one is none.
NameInQuery = Annotated[str, WithJsonSchema({"type": "string", "pattern": f"^({TOPIC_NAME_PATTERN[1:-1]})?$"})]
StateOfJobs = Annotated[str, WithJsonSchema({"enum": ["ready", "leased", "delayed", "dead", ""]})]
#: At most 128 bytes, and not empty.
AttemptKey = Annotated[str, Field(min_length=1)]
DelayMs = Annotated[U64, WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MAX_DELAY_MS})]
#: The number of a partition: whether the topic has so many is found out where it is.
PartitionOf = Annotated[
    int,
    Field(strict=True, ge=0, le=MAX_U64),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MAX_PARTITION}),
]

RouterBlocked = Annotated[
    list[str] | None, Field(description="Routers into the topic that wait for room there; left out when none does.")
]


class RequestModel(BaseModel):
    """A request body: unknown fields are ignored, and null in a field is the same as leaving it out."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)
    #: Fields in which null is a value.
    nullable: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {  # pyright: ignore[reportUnknownVariableType]
                name: field
                for name, field in value.items()  # pyright: ignore[reportUnknownVariableType]
                if field is not None or name in cls.nullable
            }
        return value


class UnknownField(ValueError):
    """A field that settings do not have; `nearest`: the one that may have been meant, None: none is near."""

    def __init__(self, field: str, nearest: str | None) -> None:
        super().__init__(f"unknown field {field}")
        self.field = field
        self.nearest = nearest


class ConfigModel(RequestModel):
    """Settings: an unknown field is refused, with the nearest one there is. A setting that is misspelled and ignored
    is noticed only when it is missed."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, value: Any) -> Any:
        if isinstance(value, dict):
            known = [field.alias or name for name, field in cls.model_fields.items()]
            check_known(value, known)  # pyright: ignore[reportUnknownArgumentType]
        return value  # pyright: ignore[reportUnknownVariableType]


class ChangeModel(ConfigModel):
    """Settings to be changed: what is named changes, all else stays. null counts as a value where it is one."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Without defaults: a field left out stays as it is."""
        schema = handler(core_schema)
        for described in handler.resolve_ref_schema(schema).get("properties", {}).values():
            described.pop("default", None)
        return schema


def check_known(given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raises UnknownField for the first field of `given` that is not `known`."""
    names = list(known)
    for name in given:
        if name not in names:
            near = get_close_matches(name, names, n=1)
            raise UnknownField(name, near[0] if near else None)


class AnswerModel(BaseModel):
    """An answer. Clients ignore fields they do not know; here an unknown field is a mistake of ours."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
