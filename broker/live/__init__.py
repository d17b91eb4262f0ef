"""Live reading: sends records to watchers as they are committed (source: api.md §5)."""
