"""The tables of the documents that are made from the program: `python -m tests.support.reference` writes them anew.

Each stands between `<!-- name: made by ... -->` and `<!-- end of name -->`; what is around them is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from broker import logged, metric_table
from broker.http.errors import CODES
from tests.tidy.tree import ROOT

COMMAND: Final = "python -m tests.support.reference"
OPERATIONS: Final = ROOT / "docs/guides/operate.md"
API: Final = ROOT / "docs/reference/api.md"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def events() -> str:
    return table(
        ("event", "level", "fields", "meaning", "what to do"),
        ((f"`{each.name}`", each.level, _names(each.fields), each.means, each.advice) for each in logged.ALL),
    )


def _names(fields: str) -> str:
    return " ".join(f"`{field}`" if not field.startswith("[") else f"[`{field[1:-1]}`]" for field in fields.split())


def metrics() -> str:
    return table(
        ("metric", "type", "labels", "unit", "meaning"),
        (
            (f"`{each.exposed}`", each.kind, _names(each.labels), each.unit, each.help)
            for each in sorted(metric_table.ALL)
        ),
    )


def errors() -> str:
    return table(
        ("status", "code", "Retry-After", "cause", "again?", "what was done"),
        (
            (str(each.status), f"`{code}`", f"{each.wait_s or ''}", each.cause, each.retry, each.effect)
            for code, each in CODES.items()
        ),
    )


#: By name: the page it is on, and what makes it.
TABLES: Final[dict[str, tuple[Path, Callable[[], str]]]] = {
    "events": (OPERATIONS, events),
    "metrics": (OPERATIONS, metrics),
    "errors": (API, errors),
}


def written(page: str, name: str, text: str) -> str:
    """The page with `text` as its table `name`. Raises ValueError when the page has no place for it."""
    before, after = f"<!-- {name}: made by {COMMAND} -->\n", f"\n<!-- end of {name} -->"
    place = re.compile(re.escape(before) + ".*?" + re.escape(after), re.DOTALL)
    if len(place.findall(page)) != 1:
        raise ValueError(f"the page has no place, or more than one, for the table {name}")
    return place.sub(lambda _: f"{before}\n{text}\n{after}", page)


def main() -> None:
    for name, (path, make) in TABLES.items():
        path.write_text(written(path.read_text(), name, make()))


if __name__ == "__main__":
    main()
