"""Lease queues: the jobs of a queue are the records of its topic. Source: api.md §6.

`storage.state.queues` has the pure state machine; this package runs it.
"""
