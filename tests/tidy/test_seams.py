"""The disk, the time and the status codes are each used in one place only."""

from __future__ import annotations

import pytest

from tests.tidy.rules_seams import disk_problems, status_problems, time_problems
from tests.tidy.tree import Source, python_files


def test_only_the_seam_touches_the_disk() -> None:
    assert [problem for source in python_files() for problem in disk_problems(source)] == []


def test_only_the_clock_knows_the_time() -> None:
    assert [problem for source in python_files() for problem in time_problems(source)] == []


def test_only_the_error_table_knows_status_codes() -> None:
    assert [problem for source in python_files() for problem in status_problems(source)] == []


@pytest.mark.parametrize("text", ["open('x')", "import os\nos.unlink('x')", "os.path.exists('x')", "os.fsync(3)"])
def test_touching_the_disk_elsewhere_is_reported(text: str) -> None:
    assert len(disk_problems(Source("storage/platform/layout.py", text))) == 1


@pytest.mark.parametrize("text", ["os.path.join('a', 'b')", "os.getpid()", "fs.open('x')", "fs.unlink('x')"])
def test_computing_a_path_is_accepted(text: str) -> None:
    assert disk_problems(Source("storage/platform/layout.py", text)) == []


def test_the_seam_itself_may_touch_the_disk() -> None:
    assert disk_problems(Source("storage/platform/posix.py", "os.fsync(3)")) == []
    assert disk_problems(Source("storage/platform/io/fd.py", "os.fsync(3)")) == []


@pytest.mark.parametrize("text", ["asyncio.sleep(1)", "loop.time()", "self.loop.call_later(1, f)"])
def test_waiting_beside_the_clock_is_reported(text: str) -> None:
    assert len(time_problems(Source("storage/bridge.py", text))) == 1
    assert time_problems(Source("storage/platform/clock.py", text)) == []


def test_yielding_to_other_tasks_is_accepted() -> None:
    assert time_problems(Source("storage/bridge.py", "asyncio.sleep(0)")) == []


@pytest.mark.parametrize(
    "text",
    [
        "raise Problem(404)",
        "raise HTTPException(detail=x)",
        "fastapi.HTTPException(x)",
        "from http import HTTPStatus",
        "status=503",
    ],
)
def test_a_status_code_elsewhere_is_reported(text: str) -> None:
    assert len(status_problems(Source("broker/api/routes/append.py", text))) == 1
    assert status_problems(Source("broker/content/errors.py", text)) == []
