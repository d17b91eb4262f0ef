"""The compiled kernel under the address and undefined behaviour sanitizers, with inputs that are changed at random."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernel.build import ROOT, SOURCES, build
from tests.kernel.fuzz import TARGETS, inputs, repaired

SANITIZERS = ("-g", "-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
#: An hour of them: TOPICS_TEST_FUZZ_S=3600.
SECONDS = float(os.environ.get("TOPICS_TEST_FUZZ_S", "60"))


def fuzz(library: Path, seconds: float, folder: Path) -> int:
    """How many inputs were tried. Fails with what the sanitizers or the comparison say."""
    preload = [_runtime("libasan.so"), _runtime("libubsan.so")]
    environment = os.environ | {
        "LD_PRELOAD": " ".join(preload),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "tests.kernel.fuzz", str(library), str(seconds)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-8000:]
    return int(done.stdout)


def _runtime(name: str) -> str:
    command = [shutil.which("cc") or "cc", f"-print-file-name={name}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_corpus_has_inputs_for_every_target() -> None:
    assert {target for target, _ in inputs()} == {*TARGETS}


def test_repairing_sound_frames_changes_nothing() -> None:
    for target, content in inputs():
        if target in ("log", "segment") and any(content):
            assert repaired(content, kind=target == "segment") == content


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
def test_mutated_inputs_stay_within_their_buffers(cc: str, tmp_path: Path) -> None:
    assert fuzz(build(tmp_path, *SANITIZERS), SECONDS, tmp_path) > 10 * SECONDS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "check"),
    [
        ("frames.c", "if (left < OVERHEAD) return SHORT;"),
        ("kafka.c", "if (reader->at == reader->end) {"),
        ("text.c", "if (width == 0 || left < width) return 0;"),
    ],
)
def test_a_missing_check_of_a_length_is_noticed(cc: str, tmp_path: Path, file: str, check: str) -> None:
    sources = tmp_path / "sources"
    shutil.copytree(SOURCES, sources)
    text = (sources / file).read_text()
    assert check in text
    (sources / file).write_text(text.replace(check, check.replace("if (", "if (0 && (").replace(") ", ")) ", 1)))
    library = build(tmp_path, *SANITIZERS, sources_in=sources)
    with pytest.raises(AssertionError, match=r"heap-buffer-overflow|the twins differ"):
        fuzz(library, 20, tmp_path)
