"""Builds the site from the pages of this folder: Sphinx, Markdown by MyST, the theme Furo. `make docs` runs it.

The pages stay plain Markdown that reads well without the site: the navigation is here, not in them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

project = "topics"
author = "the authors of topics"
extensions = ["myst_parser", "sphinxcontrib.mermaid"]
root_doc = "index"
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = "topics"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False

myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 4
# Console sessions leave parts of the output out; JSON with such a hole is no JSON.
suppress_warnings = ["misc.highlighting_failure"]

# `make docs` puts Mermaid there. Nothing is ever loaded from another host: without it a diagram shows its source.
MERMAID: Final = Path(__file__).resolve().parent.parent / "build" / "mermaid"
html_static_path = [str(MERMAID)] if MERMAID.is_dir() else []
mermaid_use_local = "mermaid.esm.min.mjs"
mermaid_fullscreen = False
mermaid_width = "auto"
mermaid_height = "auto"
mermaid_init_config = {"startOnLoad": False, "flowchart": {"wrappingWidth": 360}}

#: The navigation: titles, and the pages below each.
SECTIONS: Final[dict[str, tuple[str, ...]]] = {
    "Start": ("quickstart", "concepts", "glossary", "architecture", "cells", "cluster"),
    "Guides": (
        "guides/console",
        "guides/workers",
        "guides/browser",
        "guides/python",
        "guides/typescript",
        "guides/kafka",
        "guides/rest-proxy",
        "guides/spark",
        "guides/embedding",
        "guides/deploy",
        "guides/operate",
        "guides/secure",
        "guides/observe",
        "guides/backup",
        "guides/coming-from-topics",
    ),
    "Reference": (
        "reference/api",
        "reference/errors",
        "reference/settings",
        "reference/cli",
        "reference/python-client",
        "reference/typescript-client",
        "reference/metrics",
        "reference/events",
        "reference/guarantees",
        "reference/bucket",
        "reference/format",
    ),
    "Performance": (
        "performance",
        "benchmarks/README",
        "benchmarks/parts",
        "benchmarks/history",
        "benchmarks/profiles/README",
    ),
    "Development": ("testing", "adr/README"),
}


def _navigation() -> str:
    tables = [
        f"```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(pages) + "\n```\n"
        for title, pages in SECTIONS.items()
    ]
    return "\n".join(["", *tables])


def _decisions() -> str:
    pages = sorted(path.stem for path in Path(__file__).parent.glob("adr/[0-9]*.md"))
    return "\n```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```\n"


def _prepared(_: Any, name: str, source: list[str]) -> None:
    """Adds the navigation, and turns links to files that are not on the site into their names."""
    here = Path(__file__).resolve().parent

    def kept_or_named(link: re.Match[str]) -> str:
        path = link[2].partition("#")[0]
        target = ((here / name).parent / path).resolve()
        if not path or re.match(r"[a-z]+:", path) or target.is_relative_to(here):
            return link[0]
        return f"{link[1]} (`{target.relative_to(here.parent)}`)"

    source[0] = re.sub(r"(?<!!)\[([^\]\n]*)\]\(([^)\s]+)\)", kept_or_named, source[0])
    if name == root_doc:
        source[0] += _navigation()
    if name == "adr/README":
        source[0] += _decisions()


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _prepared)
