"""Other ways to bring a log to the disk than plain calls: the backends `mmap` and `io_uring`. Same bytes on it."""

from storage.platform.io.choose import backend_of, close_file_system, open_file_system

__all__ = [
    "backend_of",
    "close_file_system",
    "open_file_system",
]
