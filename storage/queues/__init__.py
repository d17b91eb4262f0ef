"""Lease queues: the jobs of a queue are the records of its topic.

`storage.state.queues` has the pure state machine; this package runs it.

Source: docs/reference/api.md#queues.
"""
