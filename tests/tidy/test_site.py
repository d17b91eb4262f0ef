"""The documentation builds as a site without a warning. Its links lead somewhere, and it loads nothing from other
hosts."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT

BUILD_S = 200
#: What a browser fetches by itself.
FETCHED = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src")}


class Links(HTMLParser):
    """The links of a page, what it fetches, and its ids."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.fetched: list[str] = []
        self.ids: set[str] = {""}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            if tag == "a" and name == "href" and value:
                self.targets.append(value)
            if (tag, name) in FETCHED and value:
                self.fetched.append(value)


def is_outside(target: str) -> bool:
    return re.match(r"[a-z]+:|//", target) is not None


def site_problems(pages: dict[Path, Links], exists: set[Path]) -> list[str]:
    """Links of a built site that lead nowhere, and files that a page would fetch from another host."""
    problems: list[str] = []
    for path, page in pages.items():
        problems += [f"{path} fetches {each}" for each in page.fetched if is_outside(each)]
        for target in page.targets:
            if is_outside(target):
                continue
            name, _, anchor = target.partition("#")
            to = (path.parent / name).resolve() if name else path
            if to not in exists:
                problems.append(f"{path} links to {target}, which does not exist")
            elif to in pages and anchor not in pages[to].ids:
                problems.append(f"{path} links to {target}, which has no such part")
    return problems


def read_site(folder: Path) -> tuple[dict[Path, Links], set[Path]]:
    return {path: Links(path.read_text()) for path in folder.rglob("*.html")}, set(folder.rglob("*"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", str(folder / "trees")]
    built = subprocess.run(
        [*command, str(ROOT / "docs"), str(folder / "html")],
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    assert (built.returncode, built.stdout + built.stderr) == (0, "")
    return folder / "html"


def test_the_site_has_every_page_and_no_broken_link(site: Path) -> None:
    pages, files = read_site(site)
    assert site_problems(pages, files) == []
    sources = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    assert sources <= {path.relative_to(site).with_suffix("") for path in pages}


def test_the_site_can_be_searched(site: Path) -> None:
    index = (site / "searchindex.js").read_text()
    assert (site / "search.html").is_file()
    assert "tombston" in index


@pytest.mark.parametrize(
    "page",
    [
        '<a href="gone.html">x</a>',
        '<a href="#gone">x</a>',
        '<script src="https://cdn.example.com/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example.com/x.css">',
    ],
)
def test_a_broken_page_is_found(page: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(page)
    assert len(site_problems(*read_site(tmp_path))) == 1


def test_a_whole_page_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<h1 id="a"><a href="#a">x</a> <a href="https://example.org">y</a></h1>')
    assert site_problems(*read_site(tmp_path)) == []
