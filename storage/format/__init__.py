"""The bytes on disk: pure codecs, one structure a file. docs/reference/format.md is the normative table."""
