"""Routers: what is appended to one topic is copied to another, each record once over crashes.

`routers` is what the engine sees of it; `routes`, `graph` and `router` are pure.
"""
