"""The wire codec: pure, no I/O. Declared messages are read from bytes and written to bytes, by version."""
