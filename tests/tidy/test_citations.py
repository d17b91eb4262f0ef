"""Every page that a source file cites exists, and has the named section."""

from __future__ import annotations

import pytest

from tests.tidy.rules_docs import citation_problems
from tests.tidy.test_links import read
from tests.tidy.tree import Source, python_files


def test_every_cited_page_and_part_exists() -> None:
    sources = [source for source in python_files() if not source.path.startswith("tests/tidy/")]
    assert [problem for source in sources for problem in citation_problems(source, read)] == []


PAGES = {"docs/reference/api.md": "## Live reading\n", "README.md": "# Top\n", "tests/golden/README.md": "# Files\n"}


@pytest.mark.parametrize(
    "text",
    [
        "Source: api.md.",
        "Source: docs/api.md.",
        "Source: docs/reference/api.md#queues.",
        "(docs/reference/api.md §3)",
    ],
)
def test_a_citation_of_a_missing_page_or_part_is_reported(text: str) -> None:
    assert len(citation_problems(Source("broker/x.py", f'"""Text.\n\n{text}\n"""\n'), PAGES.get)) == 1


@pytest.mark.parametrize("text", ["docs/reference/api.md#live-reading.", "README.md", "See README.md here.", '"*.md"'])
def test_a_citation_of_an_existing_page_and_part_is_accepted(text: str) -> None:
    assert citation_problems(Source("tests/golden/x.py", f'"""{text}"""\n'), PAGES.get) == []
