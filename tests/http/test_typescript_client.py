"""The TypeScript client in Node: its own tests, its package, and the programs of its guide, with real brokers."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.support.live_server import LiveServer
from tests.support.node import FETCH_S, FOLDER, PATIENCE_S, ROOT, build, program, run

GUIDE = ROOT / "docs/guides/typescript.md"
#: A program and its output.
EXAMPLE = re.compile(r"```ts\n(.*?)```\n\n```text\n(.*?)```\n", re.DOTALL)
EXAMPLE_URL = "http://127.0.0.1:4000"
TYPES = {
    "compilerOptions": {
        "target": "es2022", "module": "nodenext", "strict": True, "types": [],
        "lib": ["es2022", "dom", "dom.iterable", "dom.asynciterable"],
    }
}  # fmt: skip
SUITE_S = 900

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * FETCH_S + PATIENCE_S + SUITE_S)]


def test_the_test_suite_of_the_typescript_client_passes(npm: str) -> None:
    folder = build(npm)
    told = run([npm, "test"], folder, SUITE_S, PYTHON=sys.executable)
    passed = re.search(r"^\W*pass (\d+)$", told, re.MULTILINE)
    assert passed is not None, told
    assert int(passed[1]) >= 29


def test_the_npm_package_is_complete_and_has_no_dependency(npm: str) -> None:
    folder = build(npm)
    [packed] = json.loads(run([npm, "pack", "--dry-run", "--json"], folder))
    names = {each["path"] for each in packed["files"]}
    assert {"dist/index.js", "dist/index.d.ts", "dist/generated/api.d.ts", "package.json", "README.md"} <= names
    assert all(name.startswith("dist/") for name in names - {"package.json", "README.md"})
    assert "dependencies" not in json.loads((folder / "package.json").read_text())


def test_the_programs_of_the_guide_print_the_shown_output(tmp_path: Path, npm: str) -> None:
    build(npm)
    scope = tmp_path / "node_modules" / "@topics-broker"
    scope.mkdir(parents=True)
    (scope / "client").symlink_to(FOLDER)
    examples = EXAMPLE.findall(GUIDE.read_text())
    assert len(examples) >= 4
    with LiveServer(tmp_path / "data") as server:
        for number, (text, _) in enumerate(examples):
            assert EXAMPLE_URL in text
            (tmp_path / f"example{number}.mts").write_text(text.replace(EXAMPLE_URL, server.url))
        (tmp_path / "tsconfig.json").write_text(json.dumps({**TYPES, "include": ["*.mts"]}))
        run([program("tsc"), "-p", "."], tmp_path)
        for number, (text, shown) in enumerate(examples):
            assert run(["node", f"example{number}.mjs"], tmp_path) == shown, text
