"""Consumers: named readers of a topic whose cursors are durable. Source: api.md §7, storage.md §9."""
