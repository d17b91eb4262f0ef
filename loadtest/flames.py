"""Makes a flame graph and a table of the event loop's thread from stacks that py-spy counted.

    python -m loadtest.flames graph before.txt --title "append of 1 record, before" > before.svg
    python -m loadtest.flames table before.txt after.txt --us 130 32

The graph is an SVG without scripts: the width of a frame is its share of the samples, and each frame stands on its
caller. The table shows each function's own share, without the functions it calls; functions named by --whole include
them. --us gives the total cost of a record in each file, in µs of processor time.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH, ROW, TOP = 1200, 17, 56
CHARACTER_PX = 6.7
#: Frames narrower than this are not drawn.
MIN_PX = 1.5
COLOURS = {"broker": "#f4a259", "storage": "#7fb2e5", "elsewhere": "#d9d4c7"}

#: What runs the loop; its own time is shown as the loop's.
LOOP = "Runner.run (asyncio/runners.py)"
#: Where a function begins, which says nothing of two versions.
_LINE = re.compile(r":\d+\)$")

Stacks = Counter[tuple[str, ...]]


class Frame(NamedTuple):
    """A rectangle: `left` and `width` in samples, `depth` 0 = the loop."""

    name: str
    depth: int
    left: int
    width: int


def loop_stacks(raw: str) -> Stacks:
    """The event loop's stacks in py-spy's raw lines (`frame;frame;frame count`, recorded with --threads): those of the
    main thread, beginning with the function that the loop calls.
    """
    stacks: Stacks = Counter()
    for line in raw.splitlines():
        text, _, count = line.rpartition(" ")
        thread, *frames = (_LINE.sub(")", frame) for frame in text.split(";"))
        if "MainThread" in thread and LOOP in frames:
            stacks[tuple(frames[frames.index(LOOP) + 1 :])] += int(count)
    if not stacks:
        raise ValueError("no samples of an event loop: was py-spy asked for --threads?")
    return stacks


def layout(stacks: Stacks) -> list[Frame]:
    """All frames of the graph, callees of one caller by name."""
    frames = [Frame("event loop", 0, 0, stacks.total())]
    _place(sorted(stacks.items()), 0, 0, frames)
    return frames


def _place(stacks: list[tuple[tuple[str, ...], int]], depth: int, left: int, frames: list[Frame]) -> None:
    callees: dict[str, list[tuple[tuple[str, ...], int]]] = {}
    for names, count in stacks:
        if names:
            callees.setdefault(names[0], []).append((names[1:], count))
    for name, below in callees.items():
        width = sum(count for _, count in below)
        frames.append(Frame(name, depth + 1, left, width))
        _place(below, depth + 1, left, frames)
        left += width


def whose(name: str) -> str:
    """Part of the project that a frame `function (path)` is from."""
    folder = name.rpartition(" (")[2].partition("/")[0]
    return folder if folder in COLOURS else "elsewhere"


def svg(stacks: Stacks, title: str) -> str:
    """The picture."""
    total = stacks.total()
    scale = WIDTH / total
    drawn = [frame for frame in layout(stacks) if frame.width * scale >= MIN_PX]
    deepest = max(frame.depth for frame in drawn)
    height = TOP + (deepest + 1) * ROW + 6
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
        ' font-family="monospace" font-size="11">',
        "<style>rect{stroke:#fff;stroke-width:.5}"
        + "".join(f".{part[0]}{{fill:{colour}}}" for part, colour in COLOURS.items())
        + "</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="6" y="20" font-size="15">{escape(title)}</text>',
    ]
    for number, part in enumerate(COLOURS):
        left = 6 + 110 * number
        lines.append(f'<rect class="{part[0]}" x="{left}" y="30" width="12" height="12"/>')
        lines.append(f'<text x="{left + 17}" y="40">{part}</text>')
    lines.append(f'<text x="{WIDTH - 6}" y="40" text-anchor="end">{total:,} samples of the event loop\'s thread</text>')
    for frame in drawn:
        left, width = frame.left * scale, frame.width * scale
        down = TOP + (deepest - frame.depth) * ROW
        name = escape(frame.name)
        lines.append(
            f'<g><title>{name}: {100 * frame.width / total:.1f} %</title><rect class="{whose(frame.name)[0]}"'
            f' x="{left:.1f}" y="{down}" width="{width:.1f}" height="{ROW - 1}"/>'
        )
        room = int((width - 6) / CHARACTER_PX)
        if room >= 3:
            shown = frame.name if len(frame.name) <= room else frame.name[: room - 1] + "…"
            lines.append(f'<text x="{left + 3:.1f}" y="{down + 12}">{escape(shown)}</text>')
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


def own_shares(stacks: Stacks) -> dict[str, float]:
    """Of each function, the share of the samples that it was on top of."""
    total = stacks.total()
    own: Counter[str] = Counter()
    for frames, count in stacks.items():
        own[frames[-1] if frames else "event loop"] += count
    return {name: count / total for name, count in own.items()}


def whole_shares(stacks: Stacks) -> dict[str, float]:
    """Of each function, the share of the samples that it was somewhere in."""
    total = stacks.total()
    within: Counter[str] = Counter()
    for frames, count in stacks.items():
        for name in set(frames):
            within[name] += count
    return {name: count / total for name, count in within.items()}


def table(both: list[Stacks], us: list[float], rows: int, whole: list[str]) -> str:
    """Markdown: the functions with the largest own share on either side, then those in `whole`; shares, and µs."""
    shares = [own_shares(stacks) for stacks in both]

    def order(name: str) -> tuple[float, str]:
        return -max(share.get(name, 0.0) * each for share, each in zip(shares, us, strict=True)), name

    names = sorted({name for share in shares for name in share}, key=order)
    lines = ["| | before | after |", "|---|---:|---:|"]
    lines += [_row(f"`{name}`", [share.get(name) for share in shares], us) for name in names[:rows]]
    shares = [whole_shares(stacks) for stacks in both]
    lines += [_row(f"`{name}`, with its callees", [share.get(name) for share in shares], us) for name in whole]
    return "\n".join(lines)


def _row(name: str, shares: list[float | None], us: list[float]) -> str:
    cells = [
        "" if share is None else f"{100 * share:.1f} %, {share * each:.{1 if share * each >= 10 else 2}f} µs"
        for share, each in zip(shares, us, strict=True)
    ]
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.flames", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    graph = kinds.add_parser("graph")
    graph.add_argument("raw", type=Path)
    graph.add_argument("--title", required=True)
    compared = kinds.add_parser("table")
    compared.add_argument("before", type=Path)
    compared.add_argument("after", type=Path)
    compared.add_argument("--us", type=float, nargs=2, default=[100.0, 100.0], metavar=("BEFORE", "AFTER"))
    compared.add_argument("--rows", type=int, default=8)
    compared.add_argument("--whole", nargs="*", default=[], metavar="FRAME", help="as the graph names it")
    options = parser.parse_args()
    if options.kind == "graph":
        sys.stdout.write(svg(loop_stacks(options.raw.read_text()), options.title))
    else:
        both = [loop_stacks(path.read_text()) for path in (options.before, options.after)]
        print(table(both, options.us, options.rows, options.whole))


if __name__ == "__main__":
    main()
