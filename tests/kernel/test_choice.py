"""Which kernel is used, and that it releases its arguments."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from types import ModuleType

import pytest

import kernel
from kernel import Header
from tests.kernel.build import ROOT

HEADER = Header(7, 100, 1, b"", 0)
ASK = "import kernel; print(kernel.COMPILED, kernel.checksum(b'') == 0x2D06800538D394C2, kernel.REASON)"


def asked(**environment: str) -> str:
    command = [sys.executable, "-c", ASK]
    return subprocess.check_output(command, cwd=ROOT, env=os.environ | environment, text=True)


def test_the_python_twin_serves_on_request() -> None:
    assert asked(TOPICS_KERNEL="python").startswith("False True TOPICS_KERNEL=python")


def test_the_serving_kernel_is_reported_with_a_reason_for_the_twin() -> None:
    compiled, works, *reason = asked(TOPICS_KERNEL="").split()
    assert works == "True"
    assert bool(reason) == (compiled == "False")


def test_a_compiled_kernel_of_another_version_does_not_serve(
    monkeypatch: pytest.MonkeyPatch, compiled: ModuleType
) -> None:
    monkeypatch.delenv("TOPICS_KERNEL", raising=False)
    monkeypatch.setattr(kernel, "import_module", lambda name, package: compiled)
    assert kernel._choose() == (compiled, True, "")
    monkeypatch.setattr(compiled, "INTERFACE", 0)
    code, serves, reason = kernel._choose()
    assert (code, serves) == (kernel.plain, False)
    assert "another version" in reason


def lets_go(buffer: bytearray) -> None:
    """A buffer that is still exported cannot grow."""
    buffer.append(0)


@pytest.mark.usefixtures("twin")
def test_buffers_are_released_after_every_outcome() -> None:
    log = bytearray(kernel.encode_appends([b"1"] * 3, None, None, HEADER)[0])
    columns, rows = kernel.scan(log).columns, kernel.Columns(bytes(48))
    for use in (kernel.measure, kernel.render_rows, kernel.to_segment):
        use(log, columns)
        lets_go(log)
        with pytest.raises(ValueError, match="row"):
            use(log, rows)
        lets_go(log)
    with pytest.raises(ValueError, match="bytes"):
        kernel.scan(log, kernel.Kind.LOG, 5, 1)
    lets_go(log)
    data, tag = bytearray(b"1"), bytearray(b"t" * 70_000)
    with pytest.raises(ValueError, match="tag"):
        kernel.encode_appends([data], None, [tag], HEADER)
    lets_go(data)
    lets_go(tag)
    with pytest.raises(LookupError):
        kernel.encode_appends([data], None, None, HEADER, around=_refuses)
    lets_go(data)


def _refuses(size: int) -> tuple[bytes, bytes]:
    raise LookupError


@pytest.mark.usefixtures("twin")
def test_objects_are_released_after_every_outcome() -> None:
    data, key = b"123456789" * 3, b"key-987654321" * 3
    before = sys.getrefcount(data), sys.getrefcount(key)
    for _ in range(50):
        kernel.encode_appends([data], [data], data, HEADER)
        kernel.write_kafka(0, [0], [key], [data], [[("n", key)]], [1], 0)
        kernel.render_records([(1, 2, data, key, b'{"data":1}')])
        with pytest.raises(ValueError, match="kind"):
            kernel.encode_appends([data], None, [key], HEADER, body=9)
        with pytest.raises(ValueError, match="column"):
            kernel.write_kafka(0, [0], [key, key], [data], None, [1], 0)
        with pytest.raises(ValueError, match="record"):
            kernel.render_records([(1, 2, data, key, data)])
    assert (sys.getrefcount(data), sys.getrefcount(key)) == before


@pytest.mark.usefixtures("twin")
def test_threads_work_side_by_side_on_large_buffers() -> None:
    frames, _ = kernel.encode_appends([b'"%b"' % (b"x" * 500)] * 400, None, None, HEADER)
    expected = kernel.scan(frames)
    found: list[bool] = []

    def work() -> None:
        for _ in range(5):
            columns = kernel.scan(frames).columns
            kernel.render_rows(frames, columns)
            kernel.to_segment(frames, columns)
            found.append(columns == expected.columns)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 20
