"""With mapped files, a full disk is an error of the write: no store is made to which the kernel would answer with
SIGBUS."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

from tests.support.broker_process import ROOT
from tests.support.small_disk import SmallDisk

# On this disk a store to a hole needs space that does not exist. With a plain map this program would die from SIGBUS.
_FILL = """
import os, sys
from storage.platform.io.mmap_file import MmapFileSystem
path = sys.argv[1]
fs = MmapFileSystem()
file = fs.open(path, create=True)
file.allocate(1 << 16)
os.truncate(path, 0)
os.truncate(path, 1 << 16)              # the same length, and a hole
ballast = os.open(path + ".ballast", os.O_CREAT | os.O_WRONLY)
try:
    while os.write(ballast, bytes(4096)):
        pass
except OSError as error:
    print(error.errno)
try:
    file.pwritev([b"x" * 5000], 4096)
except OSError as error:
    print(error.errno)
"""


def test_a_full_disk_under_a_hole_is_an_error_and_not_a_signal(small_disk: SmallDisk) -> None:
    script = [*small_disk.prefix, sys.executable, "-c", _FILL, str(small_disk.mount_point / "f")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(script, capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [str(errno.ENOSPC)] * 2
