"""Extracts the commands from a Markdown page, and compares their output with what the page shows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
PROMPT = "$ "
ANYTHING = "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command, or one Python program. `shown`: the output that the page shows, None if it shows none."""

    kind: Literal["console", "python"]
    text: str
    shown: str | None


def section(page: str, name: str) -> str:
    """The part of a page between `<!-- name: begin -->` and `<!-- name: end -->`."""
    found = re.search(rf"<!-- {name}: begin -->(.*)<!-- {name}: end -->", page, re.DOTALL)
    if found is None:
        raise ValueError(f"the page has no section {name!r}")
    return found[1]


def steps(text: str) -> list[Step]:
    """The commands of all console blocks and the programs of all python blocks, in the order of the page."""
    found: list[Step] = []
    for kind, body, output in BLOCK.findall(text):
        if kind == "python":
            found.append(Step(kind="python", text=body, shown=output or None))
            continue
        for part in re.split(rf"^{re.escape(PROMPT)}", body, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            found.append(Step(kind="console", text=command, shown=shown or None))
    return found


def fits(shown: str, printed: str) -> bool:
    """Whether the output is what was shown. `…` stands for anything, and runs of white space count as one space."""
    pattern = ".*".join(re.escape(" ".join(part.split())) for part in shown.split(ANYTHING))
    # White space around the dots belongs to the text that they stand for.
    return re.fullmatch(rf"\s*{pattern}\s*", " ".join(printed.split()), re.DOTALL) is not None
