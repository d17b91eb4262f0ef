"""Generates the reference of the Python client from signatures and docstrings: docs/reference/python-client.md."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from typing import Any, Final, cast

import msgspec

import topics_client
from topics_client import calls, consumer_values, queue_calls, router_values, values, watching

#: Title, introduction, and the names in the section. Names are exported by the package, or are in the modules of
#: `_OPTIONS`.
SECTIONS: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    (
        "Clients",
        "`AsyncClient` has the methods of `Client`, to be awaited; iterators are asynchronous there.",
        ("Client", "AsyncClient", "within"),
    ),
    (
        "Options of calls",
        "Keyword arguments, all of them optional.",
        (
            "TopicSettings", "AppendOptions", "ReadOptions", "WatchOptions", "ClaimOptions", "NackOptions",
            "PurgeOptions", "RedriveOptions", "RouterOptions", "ConsumerOptions", "ConsumerChanges",
            "ConsumerReadOptions",
        ),
    ),
    ("Producers", "", ("Producer", "Sent", "AsyncProducer", "AsyncSent", "Stored")),
    ("Consumers", "", ("Consumer", "AsyncConsumer", "Consumers", "AsyncConsumers")),
    ("Workers", "", ("Worker", "JobContext", "Backoff")),
    ("Retries and hooks", "", ("RetryPolicy", "RetryBudget", "Pause", "Attempt", "Instrument")),
    (
        "Values",
        "What calls take and return. Fields are read-only.",
        (
            "NewRecord", "Record", "Tombstone", "Diff", "Appended", "Watched", "TopicState", "PartitionState",
            "OfflinePartition", "TopicSummary", "QueueSummary", "TopicPut", "TopicDeleted", "RecordsDeleted", "Job",
            "Claimed", "Settled",
            "JobSummary", "Paused", "Purged", "Redriven", "Router", "RouterPut", "RouterDeleted", "ConsumerState",
            "ConsumerPut", "ConsumerRead", "ConsumerDeleted", "Cluster", "Cell", "Takeover", "ClusterNode", "Gateway",
            "Health", "Ready",
        ),
    ),
    (
        "Errors",
        "[Errors](../reference/errors.md#errors-of-the-python-client) has the tree of them and the codes of the API.",
        (
            "TopicsError", "ConnectionFailed", "BufferFull", "ProducerClosed", "DeadlineExceeded", "BrokerTooOld",
            "UnexpectedAnswer", "ApiError", "InvalidRequest", "Unauthorized", "Forbidden", "NotFound", "TopicNotFound",
            "RouterNotFound", "ConsumerNotFound", "Conflict", "SeqConflict", "EpochConflict", "IdempotencyConflict",
            "NotAQueue", "LeaseLost", "RouterCycle", "TopicFull", "Throttled", "BrokerFault", "Unavailable", "NotReady",
            "StorageFull",
        ),
    ),
)  # fmt: skip
#: The modules with options that the package does not export. They appear in signatures only.
_OPTIONS: Final = (calls, queue_calls, watching, consumer_values, router_values, values)
_LINE: Final = 110


def page() -> str:
    """All sections."""
    return "\n\n".join(block for section in SECTIONS for block in _section(*section))


def undocumented() -> set[str]:
    """Names that the package exports and that no section has."""
    return {*topics_client.__all__} - {name for _, _, names in SECTIONS for name in names} - {"__version__"}


def _section(title: str, text: str, names: tuple[str, ...]) -> Iterator[str]:
    yield f"## {title}"
    if text:
        yield text
    for name in names:
        yield f"### {name}"
        yield from _described(name, _named(name))


def _named(name: str) -> Any:
    if name in topics_client.__all__:
        return getattr(topics_client, name)
    return next(vars(module)[name] for module in _OPTIONS if name in vars(module))


def _described(name: str, value: Any) -> Iterator[str]:
    if not inspect.isclass(value):
        if inspect.isfunction(value):
            yield _fenced(_signature(value, name))
            yield _text(value)
        else:
            yield _fenced(f"{name} = {value}".replace("typing.", "").replace("collections.abc.", ""))
        return
    if issubclass(value, BaseException):
        yield _fenced(f"class {name}({value.__bases__[0].__name__})")
        yield _text(value)
        return
    rows = _fields(value)
    if rows is None or is_dataclass(value):
        yield _fenced(_signature(value, name, "class "))
    yield _text(value)
    if rows and not is_dataclass(value):
        yield _table(rows)
    yield from _members(name, value)


def _fields(kind: Any) -> list[tuple[str, str]] | None:
    """The fields of a value or of options. None for anything else."""
    hints = _hints(kind)
    if is_dataclass(kind):
        return [(each.name, hints[each.name]) for each in dataclass_fields(kind) if not each.name.startswith("_")]
    if issubclass(kind, msgspec.Struct):
        shown = [name for name in kind.__struct_fields__ if not name.startswith("_")]
        return [(name, hints[name]) for name in shown] if shown else []
    if hasattr(kind, "__required_keys__"):
        return [(name, hint) for name, hint in hints.items()]
    return None


def _hints(kind: type) -> dict[str, str]:
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        for name, hint in vars(base).get("__annotations__", {}).items():
            found[name] = getattr(hint, "__forward_arg__", hint) if not isinstance(hint, str) else hint
    return {name: str(hint).strip("'\"") for name, hint in found.items()}


def _table(rows: list[tuple[str, str]]) -> str:
    lines = [f"| `{name}` | `{hint}` |".replace(" | ", " \\| ") for name, hint in rows]
    # Only the bars between the cells separate cells; those in types are escaped.
    lines = [line.replace("` \\| `", "` | `", 1) for line in lines]
    return "\n".join(["| field | type |", "| --- | --- |", *lines])


def _members(name: str, kind: type) -> Iterator[str]:
    """Methods and properties with docstrings, in the order of the source. Methods of an asyncio class that equal those
    of the other class are only named."""
    twin: Any = getattr(topics_client, name.removeprefix("Async"), None) if name.startswith("Async") else None
    same: list[str] = []
    for each, member in _own(kind):
        function = cast("Any", member.fget if isinstance(member, property) else member)
        if not function.__doc__:
            continue
        other = inspect.getattr_static(twin, each, None) if twin is not None else None
        other = getattr(other, "fget", other)
        if other is not None and other.__doc__ == function.__doc__:
            same.append(each)
            continue
        if isinstance(member, property):
            yield _fenced(f"{each}: {inspect.signature(function).return_annotation}")
        else:
            yield _fenced(_signature(function, each))
        yield _text(function)
        if options := re.findall(r"Unpack\[(\w+)\]", str(inspect.signature(function))):
            yield f"Options: [`{options[0]}`](#{options[0].lower()})."
    if same and twin is not None:
        listed = f"As in [`{twin.__name__}`](#{twin.__name__.lower()}): {', '.join(f'`{each}`' for each in same)}."
        yield textwrap.fill(listed, _LINE, break_long_words=False, break_on_hyphens=False)


def _own(kind: type) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for base in kind.__mro__:
        if not base.__module__.startswith("topics_client"):
            continue
        for name, member in vars(base).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            if isinstance(member, property) or inspect.isfunction(member):
                yield name, member


def _signature(function: Any, name: str, prefix: str = "") -> str:
    is_method = prefix == "class " or "." in getattr(function, "__qualname__", "")
    signature = inspect.signature(function)
    parameters = [each for each in signature.parameters.values() if not (is_method and each.name == "self")]
    signature = signature.replace(parameters=parameters)
    wrapped = getattr(function, "__wrapped__", function)
    is_async = inspect.iscoroutinefunction(wrapped) or inspect.isasyncgenfunction(wrapped)
    start = prefix or ("async def " if is_async else "def ")
    returns = (
        "" if prefix or signature.return_annotation is inspect.Parameter.empty else f" -> {_annotation(signature)}"
    )
    shown = _with_marks(parameters, [_parameter(each) for each in parameters])
    one_line = f"{start}{name}({', '.join(shown)}){returns}"
    if len(one_line) <= _LINE:
        return one_line
    return f"{start}{name}(\n" + "".join(f"    {each},\n" for each in shown) + f"){returns}"


def _annotation(signature: inspect.Signature) -> str:
    return str(signature.return_annotation).strip("'\"")


def _parameter(each: inspect.Parameter) -> str:
    """As in the source: annotations are strings there, and are shown without quotes."""
    stars = {each.VAR_KEYWORD: "**", each.VAR_POSITIONAL: "*"}.get(each.kind, "")
    hint = "" if each.annotation is each.empty else f": {str(each.annotation).strip(chr(39))}"
    default = "" if each.default is each.empty else f"{' = ' if hint else '='}{each.default!r}"
    return f"{stars}{each.name}{hint}{default}"


def _with_marks(parameters: list[inspect.Parameter], shown: list[str]) -> list[str]:
    """The asterisk before keyword-only parameters."""
    first = next((n for n, each in enumerate(parameters) if each.kind is each.KEYWORD_ONLY), None)
    if first is None or any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return shown
    return [*shown[:first], "*", *shown[first:]]


def _fenced(text: str) -> str:
    return f"```python\n{text}\n```"


def _text(value: Any) -> str:
    return inspect.cleandoc(value.__doc__ or "").replace("**", "\\*\\*")
