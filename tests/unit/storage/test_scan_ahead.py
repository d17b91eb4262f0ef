"""Reading the log ahead in processes: when it is done, what becomes of its failures, and that nothing is left of it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from storage import Options
from storage.errors import ShuttingDown
from storage.format import wal_frame
from storage.log import scan_plan, scan_process
from storage.log.position import position
from storage.log.scan_ahead import AheadScanner
from storage.log.scan_inline import InlineScanner, Job, Scanner
from storage.log.scan_plan import ShardPart, open_scanner
from storage.platform import worker_process
from storage.platform.directory import ShardTrust
from storage.platform.filesystem import FileSystem
from storage.platform.posix import PosixFile, PosixFileSystem
from storage.recovery.recovery import recover
from tests.property.test_log_bytes import comparable
from tests.support.sim_disk import SimDisk

MIB = 1 << 20
FILE_MESSAGES = 4


def frames(size_bytes: int) -> bytes:
    """Single Append frames of one log, of so many bytes in all at least."""
    data = b'{"data":"%s"}' % (b"x" * 8000)
    return b"".join(wal_frame.encode(1, 0, 1, seq, 9, data=data) for seq in range(1, size_bytes // 8000 + 2))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two files of the log, of several messages each."""
    paths = [tmp_path / "wal-0000000000000001.log", tmp_path / "wal-0000000000000002.log"]
    for path in paths:
        path.write_bytes(frames(FILE_MESSAGES * MIB) + bytes(MIB))
    return paths


@pytest.fixture
def open_scanners() -> Iterator[list[Scanner]]:
    """Scanners to be closed at the end."""
    made: list[Scanner] = []
    yield made
    for each in made:
        each.close()


def jobs_of(files: list[Path], group_from: int = 1 << 40) -> list[Job]:
    return [Job(str(path), number, 0, group_from) for number, path in enumerate(files, 1)]


def nothing() -> None:
    pass


def scanned(scanner: Scanner, job: Job, idle: Callable[[], None] = nothing) -> tuple[object, ...]:
    """Units, findings and error of one file."""
    file = PosixFileSystem().open(job.path, write=False)
    units: list[tuple[int, int, object]] = []
    error: tuple[object, ...] | None = None
    try:
        scan = scanner.scan(file, job, idle)
        try:
            units += [(each.offset, each.end, comparable(each.unit)) for each in scan.units()]
        except OSError as raised:
            error = (type(raised), raised.args, raised.filename)
        return units, scan.findings(), error
    finally:
        file.close()


def boot_with(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Workers that do this before they begin."""
    assert worker_process.BOOT.rstrip().endswith("main()")
    boot = worker_process.BOOT.rstrip().removesuffix("main()")
    monkeypatch.setattr(worker_process, "BOOT", f"{boot}\nimport os\n{code}\nmain()")


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def eventually(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + 30
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize("group_from", [0, 1 << 40])
def test_processes_find_what_is_found_in_place(
    files: list[Path], open_scanners: list[Scanner], group_from: int
) -> None:
    jobs = jobs_of(files, group_from)
    ahead = AheadScanner(jobs, 2)
    open_scanners.append(ahead)
    with capture_logs() as logs:
        assert [scanned(ahead, job) for job in jobs] == [scanned(InlineScanner(), job) for job in jobs]
    assert (len(ahead.processes), logs) == (2, [])


@pytest.mark.parametrize("messages", range(FILE_MESSAGES + 2))
def test_what_a_dead_process_has_not_delivered_is_read_in_place(
    files: list[Path], open_scanners: list[Scanner], monkeypatch: pytest.MonkeyPatch, messages: int
) -> None:
    boot_with(
        monkeypatch,
        f"""
from storage.log import scan_worker
whole, sent = scan_worker.send, []
def send(*given):
    if len(sent) == {messages}:
        os.write(1, b"half a mess")
        os._exit(1)
    sent.append(whole(*given))
scan_worker.send = send
""",
    )
    jobs = jobs_of(files)
    ahead = AheadScanner(jobs, 1)
    open_scanners.append(ahead)
    with capture_logs() as logs:
        assert [scanned(ahead, job) for job in jobs] == [scanned(InlineScanner(), job) for job in jobs]
    assert {each["event"] for each in logs} == {"scan_process_died"}


def test_processes_that_cannot_be_started_are_done_without(
    files: list[Path], open_scanners: list[Scanner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    jobs = jobs_of(files)
    with capture_logs() as logs:
        ahead = AheadScanner(jobs, 2)
    open_scanners.append(ahead)
    assert [each["event"] for each in logs] == ["scan_process_not_started"]
    assert [scanned(ahead, job) for job in jobs] == [scanned(InlineScanner(), job) for job in jobs]


@pytest.mark.parametrize("reads", [0, 1, 3])
def test_an_error_of_the_disk_in_a_process_is_the_error_in_place(
    files: list[Path], open_scanners: list[Scanner], monkeypatch: pytest.MonkeyPatch, reads: int
) -> None:
    code = f"""
from storage.platform.posix import PosixFile
whole, calls = PosixFile.pread, []
def pread(self, size, offset):
    calls.append(offset)
    if len(calls) > {reads}:
        raise OSError({errno.EIO}, "Input/output error")
    return whole(self, size, offset)
PosixFile.pread = pread
"""
    boot_with(monkeypatch, code)
    jobs = jobs_of(files)[:1]
    ahead = AheadScanner(jobs, 1)
    open_scanners.append(ahead)
    found = scanned(ahead, jobs[0])
    monkeypatch.setattr(PosixFile, "pread", PosixFile.pread)  # put back at the end
    exec(code, {})
    assert found == scanned(InlineScanner(), jobs[0])
    assert found[2] == (OSError, (errno.EIO, "Input/output error"), None)


def test_a_file_that_a_process_cannot_open_is_an_error(files: list[Path], open_scanners: list[Scanner]) -> None:
    (job,) = jobs_of([files[0].with_name("elsewhere")])
    ahead = AheadScanner([job], 1)
    open_scanners.append(ahead)
    file = PosixFileSystem().open(str(files[0]), write=False)
    with pytest.raises(FileNotFoundError, match="elsewhere"):
        list(ahead.scan(file, job, nothing).units())
    file.close()


def test_files_that_nobody_asks_for_are_passed_over(files: list[Path], open_scanners: list[Scanner]) -> None:
    jobs = jobs_of([*files, *files])
    jobs = [job._replace(number=number) for number, job in enumerate(jobs)]
    ahead = AheadScanner(jobs, 1)
    open_scanners.append(ahead)
    assert eventually(lambda: ahead.processes[0]._ended)
    with capture_logs() as logs:
        assert scanned(ahead, jobs[2]) == scanned(InlineScanner(), jobs[2])
        assert scanned(ahead, jobs[1]) == scanned(InlineScanner(), jobs[1]), "out of turn"
        assert scanned(ahead, jobs[3]) == scanned(InlineScanner(), jobs[3])
        other = jobs[3]._replace(start=len(frames(1)) // 2)
        assert scanned(ahead, other) == scanned(InlineScanner(), other), "not as it was planned"
    assert [each["event"] for each in logs] == ["scan_process_died"]


def test_a_process_waits_when_nobody_takes_what_it_finds(
    files: list[Path], open_scanners: list[Scanner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_process, "_HELD_BYTES", 1)
    jobs = jobs_of(files)
    ahead = AheadScanner(jobs, 1)
    open_scanners.append(ahead)
    (process,) = ahead.processes
    assert eventually(lambda: len(process._found) == 1)
    assert not eventually_more(process)
    assert [scanned(ahead, job) for job in jobs] == [scanned(InlineScanner(), job) for job in jobs]


def eventually_more(process: scan_process.ScanProcess) -> bool:
    time.sleep(0.3)
    return len(process._found) > 1


def test_who_waits_for_a_process_is_asked_whether_to_go_on(
    files: list[Path], open_scanners: list[Scanner], monkeypatch: pytest.MonkeyPatch
) -> None:
    boot_with(monkeypatch, "import time\ntime.sleep(60)")
    jobs = jobs_of(files)
    ahead = AheadScanner(jobs, 2)
    open_scanners.append(ahead)

    def give_up() -> None:
        raise ShuttingDown()

    with pytest.raises(ShuttingDown):
        scanned(ahead, jobs[0], give_up)
    ahead.close()
    assert all(is_gone(process.pid) for process in ahead.processes)


def test_a_recovery_that_is_given_up_leaves_no_process(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[AheadScanner] = []

    def make(jobs: list[Job], processes: int) -> AheadScanner:
        made.append(AheadScanner(jobs, processes))
        return made[-1]

    monkeypatch.setattr(scan_plan, "AheadScanner", make)
    monkeypatch.setattr(scan_plan, "LEAST_LOG_BYTES", MIB)
    root = tmp_path / "data"
    (root / "wal").mkdir(parents=True)
    for path in files:
        path.rename(root / "wal" / path.name)
    reports: list[float] = []

    def progress(fraction: float) -> None:
        reports.append(fraction)
        if fraction > 0.3:
            raise ShuttingDown()

    options, fs = Options(recovery_processes=2), PosixFileSystem()
    with pytest.raises(ShuttingDown):
        recover(fs, str(root), options, 1, trust=ShardTrust(1), now_ms=lambda last_ts: last_ts, progress=progress)
    (scanner,) = made
    assert len(scanner.processes) == 2
    assert all(is_gone(process.pid) for process in scanner.processes)
    assert not [each for each in threading.enumerate() if each.name == "storage-scan"]
    assert 0.3 < reports[-1] < 1


def test_processes_do_not_outlive_one_that_is_killed(files: list[Path]) -> None:
    script = f"""
import sys
from storage.log import scan_process
from storage.log.scan_ahead import AheadScanner
from storage.log.scan_inline import Job
scan_process._HELD_BYTES = 1
jobs = [Job(path, 1, 0, 1 << 40) for path in {[str(path) for path in files]}]
scanner = AheadScanner(jobs, 2)
while not all(process._found for process in scanner.processes):
    pass
print(*(process.pid for process in scanner.processes), flush=True)
sys.stdin.read()
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdin is not None
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    assert not any(map(is_gone, pids))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdin.close()
    parent.stdout.close()
    assert eventually(lambda: all(map(is_gone, pids)))


@pytest.mark.parametrize(
    ("processes", "fs", "least", "wanted"),
    [
        (2, PosixFileSystem(), MIB, AheadScanner),
        (1, PosixFileSystem(), MIB, InlineScanner),
        (2, PosixFileSystem(), 9 * MIB, InlineScanner),
        (2, SimDisk(), MIB, InlineScanner),
    ],
)
def test_processes_are_for_much_log_on_the_real_disk(
    files: list[Path],
    open_scanners: list[Scanner],
    monkeypatch: pytest.MonkeyPatch,
    processes: int,
    fs: FileSystem,
    least: int,
    wanted: type[Scanner],
) -> None:
    monkeypatch.setattr(scan_plan, "LEAST_LOG_BYTES", least)
    shard = ShardPart(str(files[0].parent), position(1, 0), lambda _: 0)
    scanner = open_scanner(fs, processes, [shard])
    open_scanners.append(scanner)
    assert type(scanner) is wanted


def test_only_what_is_to_be_replayed_counts_and_prepared_files_do_not(
    files: list[Path], open_scanners: list[Scanner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_plan, "LEAST_LOG_BYTES", 3 * MIB)
    (files[0].with_name("wal-0000000000000003.log")).write_bytes(bytes(8 * MIB))
    (files[0].with_name("wal-0000000000000004.log")).write_bytes(frames(100) + bytes(8 * MIB))
    directory = str(files[0].parent)

    def jobs_from(file: int, offset: int) -> list[Job]:
        found = scan_plan._files(PosixFileSystem(), ShardPart(directory, position(file, offset), lambda _: 7))
        assert all(0 < size <= FILE_MESSAGES * MIB + 20_000 for _, size in found)
        return [job for job, _ in found]

    first, second = str(files[0]), str(files[1])
    assert jobs_from(1, 0) == [Job(first, 1, 0, 7), Job(second, 2, 0, 7)]
    assert jobs_from(1, MIB) == [Job(first, 1, MIB, 7), Job(second, 2, 0, 7)]
    assert jobs_from(2, 0) == [Job(second, 2, 0, 7)]
    assert jobs_from(3, 0) == []
    scanner = open_scanner(PosixFileSystem(), 2, [ShardPart(directory, position(2, 0), lambda _: 7)])
    assert isinstance(scanner, InlineScanner), "one file is nothing to share out"


def test_by_default_there_is_a_process_a_cpu(
    files: list[Path], open_scanners: list[Scanner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_plan, "LEAST_LOG_BYTES", MIB)
    shard = ShardPart(str(files[0].parent), position(1, 0), lambda _: 0)
    for cpus, wanted in ((1, InlineScanner), (2, AheadScanner)):
        monkeypatch.setattr(scan_plan, "_cpus", lambda cpus=cpus: cpus)
        open_scanners.append(open_scanner(PosixFileSystem(), 0, [shard]))
        assert type(open_scanners[-1]) is wanted
