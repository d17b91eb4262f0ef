"""Bytes that were once written to disk, kept for good. See README.md here."""
