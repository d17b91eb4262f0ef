"""Every relative link in the documents leads somewhere."""

from __future__ import annotations

import pytest

from tests.tidy.rules_docs import link_problems, path_problems
from tests.tidy.tree import ROOT, Source, text_files


def read(path: str) -> str | None:
    """The text of a file of the project, '' for a folder and for a picture, None if it does not exist."""
    full = ROOT / path
    if full.is_dir() or (full.is_file() and full.suffix == ".webp"):
        return ""
    return full.read_text() if full.is_file() else None


def test_every_link_leads_to_a_file_and_heading() -> None:
    pages = [source for source in text_files() if source.path.endswith(".md")]
    assert pages
    assert [problem for source in pages for problem in link_problems(source, read)] == []


PAGES = {"README.md": "# Top\n", "docs/api.md": "## Read: `POST …/diff`\n```\n# not a heading\n```\n"}


@pytest.mark.parametrize("target", ["missing.md", "docs/api.md#nowhere", "#bottom", "docs/api.md#not-a-heading"])
def test_a_dead_link_is_reported(target: str) -> None:
    assert len(link_problems(Source("README.md", f"see [there]({target})"), PAGES.get)) == 1


@pytest.mark.parametrize("target", ["../README.md#top", "api.md", "api.md#read-post-diff", "https://example.org/x"])
def test_a_link_from_a_sub_folder_is_followed(target: str) -> None:
    assert link_problems(Source("docs/y.md", f"[there]({target})"), PAGES.get) == []


def test_every_file_named_by_a_page_exists() -> None:
    """Decisions and measurements describe the tree as it was."""
    pages = [
        source
        for source in text_files()
        if source.path.endswith(".md") and not source.path.startswith(("docs/adr/", "docs/benchmarks/", "CHANGELOG"))
    ]
    assert [problem for source in pages for problem in path_problems(source, read)] == []


@pytest.mark.parametrize(("text", "count"), [("`docs/gone.py`", 1), ("`docs/api.md`, `docs/`, `gone.py`", 0)])
def test_a_missing_file_is_reported(text: str, count: int) -> None:
    assert len(path_problems(Source("README.md", text), {"docs": "", "docs/api.md": ""}.get)) == count
