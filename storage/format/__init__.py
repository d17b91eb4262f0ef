"""The bytes on disk: pure codecs, one structure a file. docs/format.md is the normative table."""
