"""A file system of a few MiB that can be filled completely, seen only by the processes that are let in.

It is mounted in a mount namespace of its own, which a process that waits for the end of its input holds open. When the
`with` block ends, or the test process dies, nothing of it is left. Needs Linux and the right to mount: that of root, or
of any user where users may have namespaces.
"""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.broker_process import TETHER

_MOUNT = 'mount -t tmpfs -o size="$1",mode=0777 none "$2" && echo mounted && exec cat'
_BALLAST = "ballast-{}"
#: Settings of a broker on such a disk: the files of its log and its reserve are small too.
SMALL_LOG = {
    "wal_shards": 1,
    "wal_file_bytes": 128 << 10,
    "wal_reserve_bytes": 64 << 10,
    "snapshot_interval_ms": 100,
    "snapshot_wal_bytes": 64 << 10,
}


class CannotMount(Exception):
    """This machine does not let us mount."""


class SmallDisk:
    """`mount_point`: an empty directory. Outside the namespace it stays empty."""

    def __init__(self, mount_point: Path, size_bytes: int) -> None:
        self.mount_point = mount_point
        self._size_bytes = size_bytes
        self._holder: subprocess.Popen[str] | None = None
        self._ballast: list[Path] = []

    def __enter__(self) -> Self:
        as_root = () if os.geteuid() == 0 else ("--user", "--map-root-user")
        command = [*TETHER, "unshare", *as_root, "--mount", "--propagation", "private"]
        shell = ["sh", "-c", _MOUNT, "sh", str(self._size_bytes), str(self.mount_point)]
        holder = self._holder = subprocess.Popen(
            [*command, *shell], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert holder.stdout is not None
        if holder.stdout.readline() != "mounted\n":
            _, said = holder.communicate()
            raise CannotMount(said.strip().splitlines()[-1] if said.strip() else "no mount namespace to be had")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._holder is not None
        self._holder.kill()
        self._holder.communicate()

    @property
    def prefix(self) -> list[str]:
        """The command that runs another one so that it sees this disk."""
        assert self._holder is not None
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", f"--target={self._holder.pid}", *user, "--mount", "--"]

    def seen_from_outside(self, name: str) -> Path:
        """A file of this disk, for this process."""
        assert self._holder is not None
        return Path(f"/proc/{self._holder.pid}/root{self.mount_point}/{name}")

    def free_bytes(self) -> int:
        found = os.statvfs(self.seen_from_outside("."))
        return found.f_bavail * found.f_frsize

    def fill(self, leave_bytes: int) -> None:
        """Let something else take all space except this much. Exact as long as nobody else takes or releases any."""
        size = self.free_bytes() - leave_bytes
        if size <= 0:
            return
        path = self.seen_from_outside(_BALLAST.format(len(self._ballast)))
        with path.open("wb") as file:
            self._ballast.append(path)
            while size > 0:
                try:
                    os.posix_fallocate(file.fileno(), 0, size)
                    return
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2  # another process was faster

    def relieve(self) -> None:
        """Give all that space back."""
        while self._ballast:
            self._ballast.pop().unlink()


def refusal() -> str | None:
    """Why such a disk is not possible on this machine. None if it is."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with SmallDisk(Path(folder), 1 << 20) as disk:
                disk.fill(leave_bytes=1 << 16)
                subprocess.run([*disk.prefix, "true"], check=True, capture_output=True)
        except (CannotMount, OSError, subprocess.CalledProcessError) as error:
            return str(error)
    return None
