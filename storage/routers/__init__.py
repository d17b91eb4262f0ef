"""Routers copy what is appended to one topic to another, each record exactly once over crashes.

`routers.py` has the operations, `forwarder.py` copies. The pure state is in `storage.state.routers`.
"""
