"""Other ways to bring a log to the disk than plain calls: the backends `mmap` and `io_uring`. Same bytes on it."""
