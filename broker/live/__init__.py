"""Live reading: sends records to watchers as they are committed.

Source: docs/reference/api.md#live-reading.
"""
