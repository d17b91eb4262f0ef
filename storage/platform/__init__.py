"""The machine below the engine: clock, file system, I/O backends, file names, worker processes.

Everything else in storage gets these injected; nothing else makes a system call or asks for the time.
"""
