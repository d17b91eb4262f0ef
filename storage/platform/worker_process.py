"""Starts a process of the engine: a module's `main`, with a pipe to its stdin and one from its stdout.

multiprocessing is no option: it would import the main module of the embedding program again, or fork a process that
has threads. The interpreter starts without `site` and with only those parts of the engine that the module needs, in
a fraction of the time that `import storage` takes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence

BOOT = """
import sys, types
sys.path[:] = sys.argv[3:]
package = types.ModuleType("storage")
package.__path__ = [sys.argv[1]]
sys.modules["storage"] = package
main = __import__(sys.argv[2], fromlist=["main"]).main
main()
"""


def start(module: str, *, pass_fds: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """Run `module.main()`; it must end with its stdin. `pass_fds` stay open in it. Raises OSError."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-u", "-c", BOOT, package, module, *filter(None, sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=pass_fds,
        process_group=0,  # Ctrl-C goes to the process that was started by hand, which then ends this one
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill it, whatever it is doing; on return it has ended, and its pipes are closed."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
