"""The backends `mmap` and `io_uring`, which write the log without plain calls. The bytes on disk are the same."""

from storage.platform.io.choose import backend_of, close_file_system, open_file_system

__all__ = [
    "backend_of",
    "close_file_system",
    "open_file_system",
]
