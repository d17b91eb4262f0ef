"""Checks whether a hot path has become slower: counts its instructions, which do not depend on other load.

    python -m loadtest.guard                    compare with loadtest/guard.json; 1 when a path costs over 10 % more
    python -m loadtest.guard --update           store the counts as the new reference

Each path runs under `valgrind --tool=cachegrind` (without the cache simulation) twice: N times and 3N times. The
difference is the cost of the path alone, without the interpreter's start. A path is compared as a multiple of the
floor: work that any broker in Python has to do, counted in the same way. Interpreters differ by a tenth and more even
in these multiples, so each build of Python has its own reference. For a build without one nothing is compared, and the
exit status is 3.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from loadtest.guard_work import PATHS

ROOT = Path(__file__).resolve().parents[1]
FILE = Path(__file__).with_suffix(".json")
ALLOWED = 1.10
_COUNT = re.compile(r"I\s+refs:\s+([\d,]+)")


class Known(msgspec.Struct, kw_only=True):
    """The reference of one build of Python: multiples of the floor by path."""

    floor_instructions: int
    multiples: dict[str, float]


def build() -> str:
    """The build of Python that runs this: its version, compiler and options that change what code costs."""
    options = (sysconfig.get_config_var("CONFIG_ARGS") or "").split()
    optimized = [name for name in ("--enable-optimizations", "--with-lto") if any(name in each for each in options)]
    return ", ".join([platform.python_version(), platform.python_compiler(), *optimized])


def read_known() -> dict[str, Known]:
    """By build of Python."""
    return msgspec.json.decode(FILE.read_bytes(), type=dict[str, Known]) if FILE.exists() else {}


def counted(name: str, times: int) -> int:
    """Instructions of a process that does this so often. Raises RuntimeError when it fails."""
    done = subprocess.run(
        [
            *("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"),
            *(sys.executable, "-m", "loadtest.guard_work", name, str(times)),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    found = _COUNT.search(done.stderr)
    if done.returncode != 0 or found is None:
        raise RuntimeError(f"{name} could not be counted:\n{done.stderr[-2000:]}")
    return int(found[1].replace(",", ""))


def instructions(name: str) -> float:
    """Of one time."""
    _, times = PATHS[name]
    return (counted(name, 3 * times) - counted(name, times)) / (2 * times)


def lines(found: dict[str, float], known: Known | None) -> tuple[list[str], bool]:
    """A line a path, and whether none is dearer than is allowed."""
    shown: list[str] = []
    holds = True
    for name, count in found.items():
        multiple = count / found["floor"]
        before = None if known is None else known.multiples.get(name)
        judged = ""
        if before is not None:
            judged = f"   was x {before:.2f}: {multiple / before - 1:+.1%}"
            if multiple > before * ALLOWED:
                judged += "   TOO DEAR"
                holds = False
        shown.append(f"{name:14} {count:12,.0f} instructions   x {multiple:.2f} of the floor{judged}")
    return shown, holds


def main(arguments: list[str] | None = None) -> int:
    """0; 1 when a path has become slower, 2 when instructions cannot be counted, 3 when there is no reference."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.guard", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--update", action="store_true", help="keep what is found in loadtest/guard.json")
    parser.add_argument("--paths", nargs="+", choices=[*PATHS], default=[*PATHS])
    options = parser.parse_args(arguments)
    names = list(dict.fromkeys(["floor", *options.paths]))
    try:
        with ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)))) as pool:
            found = dict(zip(names, pool.map(instructions, names), strict=True))
    except (OSError, RuntimeError) as error:
        print(f"Cannot count instructions (is valgrind installed?): {error}", file=sys.stderr)
        return 2
    all_known = read_known()
    known = all_known.get(build())
    shown, holds = lines(found, None if options.update else known)
    print("\n".join(shown))
    if options.update:
        multiples = {name: round(count / found["floor"], 3) for name, count in found.items()}
        all_known[build()] = Known(
            floor_instructions=int(found["floor"]),
            multiples={**(known.multiples if known is not None else {}), **multiples},
        )
        FILE.write_bytes(msgspec.json.format(msgspec.json.encode(all_known), indent=1) + b"\n")
        print(f"kept in {FILE.relative_to(ROOT)} for Python {build()}")
        return 0
    if known is None:
        print(f"Not compared: {FILE.relative_to(ROOT)} has no figures of Python {build()}. --update adds them.")
        return 3
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
