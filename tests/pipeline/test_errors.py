"""Errors of tasks, read from the text of a traceback."""

from __future__ import annotations

import traceback

import pytest

from pipeline.errors import (
    BadOption,
    DataLoss,
    Gap,
    PipelineError,
    SegmentDamaged,
    SourceUnreadable,
    error_in,
)
from pipeline.frames import FrameDamaged


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BadOption("valueSchema: is empty"), BadOption),
        (DataLoss(Gap("t", 0, 1, 2, "evicted")), DataLoss),
        (SegmentDamaged("00001.data", 7, "a checksum fails"), SegmentDamaged),
        (FrameDamaged(7, "of another log"), SourceUnreadable),
    ],
)
def test_an_error_of_a_task_has_its_type_and_text(error: Exception, kind: type[PipelineError]) -> None:
    try:
        raise error
    except Exception:
        text = f"Job aborted due to stage failure\n{traceback.format_exc()}\n\tat org.apache.spark.Executor"
    found = error_in(text)
    assert type(found) is kind
    assert str(found) == str(error)


def test_errors_of_others_are_not_ours() -> None:
    assert error_in("Job aborted\nValueError: pipeline.errors.BadOption: quoted") is None
    assert error_in("") is None
