"""Consumers of a partition and their cursors, as the log has them. Pure."""
