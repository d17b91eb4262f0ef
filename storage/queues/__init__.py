"""Lease queues: jobs are the records of a topic of type queue. Source: api.md §6.

`values` what goes in and comes out, `policy` and `leases` the pure state machine, the rest what drives it.
"""
