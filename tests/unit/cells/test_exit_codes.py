"""With which code the process of a cell ends that has lost it."""

from __future__ import annotations

import pytest

from broker.cell import exit_code
from broker.lifecycle import ExitCode
from storage.backup import DirectoryDamaged
from storage.bucket import ClockWrong, Fenced, GivenUp, StoreBroken, Unanswered
from storage.bucket.slot import Slot


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Fenced(Slot(1, 2, "other", b"")), ExitCode.FENCED),
        (GivenUp("silent"), ExitCode.STORE_SILENT),
        (Unanswered("silent"), ExitCode.STORE_SILENT),
        (StoreBroken("created twice"), ExitCode.STORE_REFUSED),
        (ClockWrong("an hour"), ExitCode.STORE_REFUSED),
        # Its node starts another process, which makes the directory anew.
        (DirectoryDamaged("other bytes"), ExitCode.STORAGE_FAILED),
    ],
)
def test_the_code_says_why_the_cell_was_lost(error: Exception, code: ExitCode) -> None:
    assert exit_code(error) is code
