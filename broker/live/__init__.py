"""Live reading: records to those who watch topics, as they are committed (source: api.md §5)."""
