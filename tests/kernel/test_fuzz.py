"""The compiled kernel under the address and undefined behaviour sanitizers, with inputs that are changed at random."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import kernel
from tests.conftest import is_soak
from tests.kernel.build import ROOT, SOURCES, build
from tests.kernel.conftest import serve
from tests.kernel.fuzz import TARGETS, found, inputs, repaired, run_one

COVERAGE = Path(__file__).parent / "coverage.c"
SANITIZERS = ("-g", "-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
#: For an hour: TOPICS_TEST_FUZZ_S=3600.
SECONDS = float(os.environ.get("TOPICS_TEST_FUZZ_S") or (60 if is_soak(os.environ) else 20))
#: File for found inputs: TOPICS_TEST_FUZZ_KEEP=$PWD/tests/kernel/found.bin renews it.
KEEP = os.environ.get("TOPICS_TEST_FUZZ_KEEP", "")
#: The most inputs of the corpus.
CORPUS_BYTES = 200_000


def fuzz(library: Path, seconds: float, folder: Path, seed: int = 0) -> int:
    """Number of inputs tried. Fails with the report of the sanitizers or of the comparison."""
    preload = [_runtime("libasan.so"), _runtime("libubsan.so")]
    environment = os.environ | {
        "LD_PRELOAD": " ".join(preload),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "tests.kernel.fuzz", str(library), str(seconds), "--seed", str(seed)]
    command += ["--keep", KEEP] if KEEP else []
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-8000:]}"
    return int(done.stdout)


def _runtime(name: str) -> str:
    command = [shutil.which("cc") or "cc", f"-print-file-name={name}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def guided(folder: Path, sources_in: Path = SOURCES) -> Path:
    """The library with sanitizers and coverage counters."""
    counting = folder / "coverage.o"
    subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-fPIC", "-c", str(COVERAGE), "-o", str(counting)], check=True)
    options = (*SANITIZERS, "-fsanitize-coverage=trace-pc", str(counting))
    return build(folder, *options, sources_in=sources_in)


def test_the_corpus_has_inputs_for_every_target_and_is_small() -> None:
    assert {target for target, _ in inputs()} == {*TARGETS}
    assert {target for target, _ in found()} <= {*TARGETS}
    assert sum(len(content) for _, content in (*inputs(), *found())) < CORPUS_BYTES


def test_the_twins_agree_on_the_corpus(compiled: ModuleType) -> None:
    before = kernel._code
    try:
        for target, content in (*inputs(), *found()):
            run_one(target, content, (compiled, kernel.plain))
    finally:
        serve(before)


def test_repairing_valid_frames_changes_no_byte() -> None:
    for target, content in inputs():
        if target in ("log", "segment") and any(content):
            assert repaired(content, kind=target == "segment") == content


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
def test_mutated_inputs_stay_within_their_buffers(cc: str, tmp_path: Path) -> None:
    # Other inputs in each run: what a short one leaves out is tried by another one.
    seed = random.getrandbits(32)
    assert fuzz(guided(tmp_path), SECONDS, tmp_path, seed) > 10 * SECONDS


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
    library = guided(tmp_path, sources)
    with pytest.raises(AssertionError, match=r"heap-buffer-overflow|the twins differ"):
        fuzz(library, 20, tmp_path)
