"""The processor time of a process includes that of its children."""

from __future__ import annotations

import os
import subprocess
import sys

from loadtest.observed import children_s, cpu_of

#: Works for this long, then waits until its input ends.
BUSY = """
import sys, time
while time.process_time() < 0.3:
    pass
print("worked", flush=True)
sys.stdin.read()
"""
PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {BUSY!r}], stdin=subprocess.PIPE)
sys.stdin.readline()
child.stdin.close()
child.wait()
print("ended", flush=True)
sys.stdin.read()
"""


def test_running_and_ended_children_are_counted() -> None:
    before = children_s(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "worked\n"
        assert cpu_of(process.pid).total_s >= 0.29, "of its child, which runs"
        assert cpu_of(process.pid).main_s < cpu_of(process.pid).total_s
        assert children_s(os.getpid()) - before >= 0.29
        process.stdin.write("\n")
        assert process.stdout.readline() == "ended\n"
        assert cpu_of(process.pid).total_s >= 0.29, "of its child, which has ended"
        process.stdin.close()
