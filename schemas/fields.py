"""Field types and base classes of the models."""

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
#: The longest delay of a job: 366 days.
MAX_DELAY_MS = 366 * 86_400_000

#: Strict: true, "1" and 1.5 are not integers.
U64 = Annotated[int, Field(strict=True, ge=0, le=MAX_U64)]
I32 = Annotated[int, Field(strict=True, ge=-(2**31), le=2**31 - 1)]
Flag = Annotated[bool, Field(strict=True)]


def parse_u64(text: str) -> int:
    """Parse a u64 in a path or query: only digits. Raises ValueError."""
    # isascii, because isdigit accepts digits of other scripts. The length, because int() of a long text is slow.
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= MAX_U64):
        raise ValueError(f"expected an integer from 0 to {MAX_U64}")
    return int(text)


def parse_flag(text: str) -> bool:
    """Parse a boolean in a query: true or false, 1 or 0. Raises ValueError."""
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

#: Any JSON value, stored and returned byte for byte.
JsonValue = Annotated[Any, WithJsonSchema({"description": "Any JSON value. It is returned byte for byte."})]

TagPredicate = Annotated[
    Any,
    WithJsonSchema(
        {
            "description": 'Tags equal to x: "x" or ["tag","Eq","x"]; tags that begin with x: ["tag","Glob","x*"]. '
            "A plain string must not contain *.",
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


#: A topic's name in a field. `broker.service` checks it.
NameOfTopic = Annotated[str, WithJsonSchema({"type": "string", "pattern": TOPIC_NAME_PATTERN})]
#: A topic's name in a query; empty means none.
NameInQuery = Annotated[str, WithJsonSchema({"type": "string", "pattern": f"^({TOPIC_NAME_PATTERN[1:-1]})?$"})]
StateOfJobs = Annotated[str, WithJsonSchema({"enum": ["ready", "leased", "delayed", "dead", ""]})]
#: 1 to 128 bytes.
AttemptKey = Annotated[str, Field(min_length=1)]
DelayMs = Annotated[U64, WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MAX_DELAY_MS})]
#: The number of a partition. Whether it exists is checked later.
PartitionOf = Annotated[
    int,
    Field(strict=True, ge=0, le=MAX_U64),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MAX_PARTITION}),
]

RouterBlocked = Annotated[
    list[str] | None, Field(description="Routers to the topic that wait for room in it; omitted if none does.")
]


class RequestModel(BaseModel):
    """A request body. Unknown fields are ignored, and null in a field means that it is omitted."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)
    #: Fields for which null is a value.
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
    """A setting that does not exist. `nearest`: the most similar one, None: no similar one exists."""

    def __init__(self, field: str, nearest: str | None) -> None:
        super().__init__(f"unknown field {field}")
        self.field = field
        self.nearest = nearest


class ConfigModel(RequestModel):
    """Settings. An unknown field is refused, and the error names the most similar one: a misspelled setting that is
    ignored would go unnoticed."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, value: Any) -> Any:
        if isinstance(value, dict):
            known = [field.alias or name for name, field in cls.model_fields.items()]
            check_known(value, known)  # pyright: ignore[reportUnknownArgumentType]
        return value  # pyright: ignore[reportUnknownVariableType]


class ChangeModel(ConfigModel):
    """Changes of settings: omitted fields stay. null is a value for settings that can be null."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Remove the defaults: omitted fields stay."""
        schema = handler(core_schema)
        for described in handler.resolve_ref_schema(schema).get("properties", {}).values():
            described.pop("default", None)
        return schema


def check_known(given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raises UnknownField for the first field of `given` that is not in `known`."""
    names = list(known)
    for name in given:
        if name not in names:
            near = get_close_matches(name, names, n=1)
            raise UnknownField(name, near[0] if near else None)


class AnswerModel(BaseModel):
    """An answer. Unknown fields are a defect here; clients ignore them."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
