"""Errors of tasks, read from the text of a traceback."""

from __future__ import annotations

import traceback

import pytest

from pipeline.errors import (
    BadOption,
    DataLoss,
    Gap,
    LagsBehind,
    NotDurable,
    PipelineError,
    SegmentDamaged,
    SourceUnreadable,
    TopicGone,
    counted,
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


def test_counts_are_in_the_singular_or_the_plural() -> None:
    assert [counted(n, "file", "is|are") for n in (0, 1, 1200)] == ["0 files are", "1 file is", "1,200 files are"]
    assert str(LagsBehind("t", 1, 0)).startswith("t: 1 durable seq is not exported")
    gone = str(TopicGone("t", [Gap("t", 0, 2, 2, "deleted", 1)]))
    assert "exported up to 1 seq; 1 record is known that was not exported" in gone
    assert "1 of its records is only in memory" in str(NotDurable("t", 1))
