"""Consumers: durable named readers of one topic each.

`consumers` is what the engine sees of it; `consumer` and `table` are pure.
"""
