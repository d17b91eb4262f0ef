"""Writes the tables of the documentation that are generated from the program: `python -m tests.support.reference`.

Each table is between `<!-- name: made by ... -->` and `<!-- end of name -->`. Rows of settings are replaced in place,
because their order and the headings between them are chosen by hand.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from broker.content.errors import CODES
from broker.settings import PREFIX, Settings
from broker.telemetry import log_events as logged
from broker.telemetry import metric_table
from tests.support import client_reference, typescript_reference
from tests.tidy.tree import ROOT
from topics_client.cli import app

COMMAND: Final = "python -m tests.support.reference"
REFERENCE: Final = ROOT / "docs/reference"
SETTINGS: Final = REFERENCE / "settings.md"
#: The page with the headings that texts of the program link to.
LINKS: Final = {
    "#keys": "api.md#keys",
    "#pages-of-other-sites": "api.md#pages-of-other-sites",
    "#damaged-file": "../guides/operate.md#damaged-file",
    "#failed-sync": "../guides/operate.md#failed-sync",
    "#pressure": "../guides/operate.md#pressure",
}


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [titles, ["---"] * len(titles), *rows]
    text = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return re.sub(r"\]\((#[^)]*)\)", lambda link: f"]({LINKS[link[1]]})", text)


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


def commands() -> str:
    """The commands of `topics`, including those of groups."""
    return table(("command", "what it does"), ((f"`{name}`", text) for name, text in _commands(_root(), "topics")))


def _root() -> Any:
    return app


def _commands(group: Any, name: str) -> Iterable[tuple[str, str]]:
    context = click.Context(group)
    for each in group.list_commands(context):
        command = group.get_command(context, each)
        if hasattr(command, "commands"):
            yield from _commands(command, f"{name} {each}")
        else:
            yield f"{name} {each}", " ".join((command.help or "").split("\n\n")[0].replace("`", "").split())


def shown_default(value: Any) -> str:
    """A default in the form in which one would set it. Whole MiB are written as such."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if isinstance(value, int) and value >= 1 << 20 and value % (1 << 20) == 0:
        return f"`{value}` ({value >> 20} MiB)"
    return f"`{value.value if isinstance(value, enum.Enum) else value}`"


def settings_rows() -> dict[str, str]:
    """The row that each variable must have in the table of settings."""
    return {
        (name := PREFIX + field.upper()): f"| `{name}` | {shown_default(of.default)} | {of.description} |"
        for field, of in Settings.model_fields.items()
    }


def with_settings(page: str) -> str:
    """The page with every row of a setting as the program has it. Rows of removed settings stay, for a test to find."""
    rows = settings_rows()
    return re.sub(rf"^\| `({PREFIX}\w+)` \|.*$", lambda row: rows.get(row[1], row[0]), page, flags=re.MULTILINE)


#: For each table: the page it is on, and what makes it.
TABLES: Final[dict[str, tuple[Path, Callable[[], str]]]] = {
    "events": (REFERENCE / "events.md", events),
    "metrics": (REFERENCE / "metrics.md", metrics),
    "errors": (REFERENCE / "errors.md", errors),
    "commands": (REFERENCE / "cli.md", commands),
    "names of the client": (REFERENCE / "python-client.md", client_reference.page),
    "names of the TypeScript client": (REFERENCE / "typescript-client.md", typescript_reference.page),
}


def written(page: str, name: str, text: str) -> str:
    """The page with `text` as its table `name`. Raises ValueError if the page has no place for it."""
    before, after = f"<!-- {name}: made by {COMMAND} -->\n", f"\n<!-- end of {name} -->"
    place = re.compile(re.escape(before) + ".*?" + re.escape(after), re.DOTALL)
    if len(place.findall(page)) != 1:
        raise ValueError(f"the page has no place, or more than one, for the table {name}")
    return place.sub(lambda _: f"{before}\n{text}\n{after}", page)


def main() -> None:
    for name, (path, make) in TABLES.items():
        path.write_text(written(path.read_text(), name, make()))
    SETTINGS.write_text(with_settings(SETTINGS.read_text()))


if __name__ == "__main__":
    main()
