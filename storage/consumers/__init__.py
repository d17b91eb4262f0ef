"""Consumers: durable named readers of one topic each.

The engine uses `consumers`. The pure state is in `storage.state.consumers`.
"""
