"""Links between the documents, and citations of documents in the sources."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath

from tests.tidy.tree import Source

LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CITATION = re.compile(r"(?<![\w./*\"'-])((?:[\w-]+/)*[A-Za-z][\w-]*\.md)(#[\w-]+)?( §)?")
PATH = re.compile(r"`((?:broker|client|demo|docs|examples|helm|loadtest|pipeline|schemas|storage|tests)/[\w./-]*)`")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """The anchors of a Markdown page: its headings in lower case, with dashes for spaces and without punctuation."""
    titles = HEADING.findall(FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def link_problems(source: Source, read: Callable[[str], str | None]) -> list[str]:
    """Relative links that lead nowhere. `read` returns a file's text, '' for a folder, None if it does not exist."""
    problems: list[str] = []
    for target in LINK.findall(FENCE.sub("", source.text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        full = normal(PurePosixPath(source.path).parent / path) if path else source.path
        text = read(full)
        if text is None:
            problems.append(f"{source.path} links to {target}, which does not exist")
        elif anchor and anchor not in anchors(text):
            problems.append(f"{source.path} links to {target}, but {full} has no such heading")
    return problems


def normal(path: PurePosixPath) -> str:
    """The path with its `..` resolved."""
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts = parts[:-1]
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def citation_problems(source: Source, read: Callable[[str], str | None]) -> list[str]:
    """Pages named in a source file that do not exist, or lack the named section. A name alone is a page beside the
    file, or at the root."""
    problems: list[str] = []
    for number, line in enumerate(source.text.splitlines(), 1):
        for page, anchor, sign in CITATION.findall(line):
            beside = normal(PurePosixPath(source.path).parent / page)
            text = read(page) if read(page) is not None or "/" in page else read(beside)
            where = f"{source.path}:{number} cites {page}{anchor}"
            if text is None:
                problems.append(f"{where}, which does not exist")
            elif anchor and anchor[1:] not in anchors(text):
                problems.append(f"{where}, but there is no such part")
            elif sign:
                problems.append(f"{where} by a number: name the part, as #part")
    return problems


def path_problems(source: Source, read: Callable[[str], str | None]) -> list[str]:
    """Files and folders that a page names in code style and that do not exist."""
    return [
        f"{source.path} names {path}, which does not exist"
        for path in PATH.findall(FENCE.sub("", source.text))
        if read(path.rstrip("/")) is None
    ]
