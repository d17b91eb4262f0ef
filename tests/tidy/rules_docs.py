"""Links between the documents."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath

from tests.tidy.tree import Source

LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """The anchors a Markdown page offers: its headings, lower case, spaces as dashes, punctuation dropped."""
    titles = HEADING.findall(FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def link_problems(source: Source, read: Callable[[str], str | None]) -> list[str]:
    """Relative links that lead nowhere. `read` gives a file's text, '' for a folder, None when absent."""
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
