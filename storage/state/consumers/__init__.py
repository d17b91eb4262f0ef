"""Consumers of a partition and their cursors, as recorded in the log. Pure."""
