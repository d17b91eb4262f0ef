"""The engine for programs without an event loop."""

from storage.blocking.engine import BlockingEngine

__all__ = ["BlockingEngine"]
