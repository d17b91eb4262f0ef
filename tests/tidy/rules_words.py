"""Words that mean nothing to a reader who knows Kafka, PostgreSQL and SQS must not be in identifiers.

An identifier is split into words at underscores and capitals. `ALLOWED` names the identifiers that have such a word for
a reason: another project's API or a standard gave the name, or the word has its usual meaning there.
"""

from __future__ import annotations

import ast
import fnmatch
import re
from collections.abc import Iterator
from typing import Final

from tests.tidy.tree import Source

FOLDERS: Final = ("broker", "pipeline", "schemas", "storage", "topics_client")
BANNED: Final = frozenset(
    [
        "absorb",
        "absorbed",
        "absorber",
        "absorbing",
        "absorption",
        "alike",
        "calm",
        "company",
        "copyist",
        "cutting",
        "deal",
        "dealer",
        "dealing",
        "dealt",
        "debt",
        "debts",
        "desk",
        "desks",
        "door",
        "grant",
        "granted",
        "grants",
        "hand",
        "handed",
        "hands",
        "joined",
        "kept",
        "liaison",
        "mend",
        "obstacle",
        "obstacles",
        "passed",
        "place",
        "placed",
        "places",
        "relief",
        "rows",
        "runs",
        "settle",
        "settled",
        "settles",
        "settling",
        "single",
        "singles",
        "soon",
        "spreading",
        "stretch",
        "stretches",
        "together",
        "told",
        "turn",
        "turns",
        "upkeep",
        "wish",
        "wishes",
        "span",
        "spans",
    ]
)
#: As a last word. A prefix `try_` says that the function does not wait.
BANNED_LAST: Final = frozenset({"now"})
#: (identifier, files): why it may have the word.
ALLOWED: Final[dict[tuple[str, str], str]] = {
    ("absorbed", "storage/format/control.py"): "a field of a frame on disk",
    ("absorbed", "storage/snapshot/contents.py"): "a field of a snapshot on disk",
    ("_ENHANCE_YOUR_CALM", "broker/server/protocols.py"): "an error code of HTTP/2 (RFC 9113)",
    ("*[Gg]rant*", "broker/auth/*"): "what a key may do, as in SQL's GRANT",
    ("grant*", "broker/memory/*"): "a memory grant, as databases call it",
    ("joined", "broker/kafka/groups/*"): "Kafka's word: JoinGroup",
    ("prepareForTriggerAvailableNow", "pipeline/source/stream.py"): "Spark's interface",
    ("REPLACE_IN_PLACE", "broker/kafka/groups/states.py"): "in place is plain English",
    ("*[Rr]ows", "pipeline/*"): "rows of a DataFrame or an Arrow batch",
    ("*ROWS", "pipeline/*"): "rows of a DataFrame or an Arrow batch",
    ("*_rows", "pipeline/*"): "rows of a DataFrame or an Arrow batch",
    ("*[Ss]ettle*", "clients/python/*"): "to settle: ack, nack or extend, as in AMQP and OpenTelemetry",
    ("*SETTLED", "clients/python/*"): "to settle: ack, nack or extend",
    ("_settling", "clients/python/topics_client/queue_calls.py"): "to settle: ack, nack or extend",
    ("Settled", "schemas/queues.py"): "to settle: ack, nack or extend",
    ("_SETTLED", "schemas/queues.py"): "to settle: ack, nack or extend",
    ("Settled", "storage/state/queues/values.py"): "to settle: ack, nack or extend",
    ("Settle", "broker/service/queues.py"): "to settle: ack, nack or extend",
    ("settles", "broker/auth/*"): "to settle: ack, nack or extend",
    ("_SINGLE_MMAP", "storage/platform/io/ring.py"): "the kernel's name: IORING_FEAT_SINGLE_MMAP",
    ("*span*", "broker/tracing/*"): "OpenTelemetry's word",
}

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def words_of(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name)]


def definitions(source: Source) -> Iterator[tuple[int, str]]:
    """(line, name) of everything that a file names, and of the file itself."""
    yield 1, source.path.rpartition("/")[2].removesuffix(".py")
    for node in ast.walk(ast.parse(source.text)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case _:
                pass


def banned_words(name: str) -> list[str]:
    words = words_of(name)
    found = [word for word in words if word in BANNED]
    return found + [word for word in words[1:][-1:] if word in BANNED_LAST]


def is_allowed(name: str, path: str) -> bool:
    return any(fnmatch.fnmatchcase(name, allowed) and fnmatch.fnmatchcase(path, files) for allowed, files in ALLOWED)


def word_problems(source: Source) -> list[str]:
    """Identifiers with a banned word that nothing allows."""
    if source.folder not in FOLDERS:
        return []
    seen: dict[str, int] = {}
    for line, name in definitions(source):
        if banned_words(name) and not is_allowed(name, source.path):
            seen.setdefault(name, line)
    return [
        f"{source.path}:{line} {name}: {', '.join(banned_words(name))} is no word of this field"
        for name, line in seen.items()
    ]


def unused_allowances(sources: tuple[Source, ...]) -> list[str]:
    """Entries of `ALLOWED` that nothing needs any more."""
    named = {(name, source.path) for source in sources if source.folder in FOLDERS for _, name in definitions(source)}
    return [
        f"{name} in {files}"
        for name, files in ALLOWED
        if not any(fnmatch.fnmatchcase(n, name) and fnmatch.fnmatchcase(p, files) and banned_words(n) for n, p in named)
    ]
