"""Cold stores that are slow, or that fail where a test says so, in front of a real one.

store = SlowStore(inner, delay_ms=50, sleep=time.sleep)    # or any callable that takes seconds
store = FailingStore(inner)
store.fail("put*", "*.data", nth=2)                          # the second put of a .data raises ColdUnavailable
store.fail("put", happened=True)                             # it is carried out, and its answer is lost
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeVar

from storage.platform.filesystem import Readable
from storage.segments.tiering.store import ColdStore, ColdUnavailable

T = TypeVar("T")


class _Wrapped:
    """A ColdStore that passes every request through `_ask`."""

    def __init__(self, inner: ColdStore) -> None:
        self.inner = inner
        #: Every request that arrived, as (method, key), in order, including those that failed.
        self.calls: list[tuple[str, str]] = []
        self._mutex = threading.Lock()

    def put(self, key: str, path: str) -> None:
        self._ask("put", key, lambda: self.inner.put(key, path))

    def put_from(self, key: str, source: Readable) -> None:
        self._ask("put", key, lambda: self.inner.put_from(key, source))

    def put_bytes(self, key: str, data: bytes) -> None:
        self._ask("put_bytes", key, lambda: self.inner.put_bytes(key, data))

    def get(self, key: str) -> bytes:
        return self._ask("get", key, lambda: self.inner.get(key))

    def get_range(self, key: str, offset: int, size: int) -> bytes:
        return self._ask("get_range", key, lambda: self.inner.get_range(key, offset, size))

    def size(self, key: str) -> int:
        return self._ask("size", key, lambda: self.inner.size(key))

    def delete(self, key: str) -> None:
        self._ask("delete", key, lambda: self.inner.delete(key))

    def list(self, prefix: str) -> list[str]:
        return self._ask("list", prefix, lambda: self.inner.list(prefix))

    def describe(self) -> str:
        return self.inner.describe()

    def _ask(self, method: str, key: str, request: Callable[[], T]) -> T:
        with self._mutex:
            self.calls.append((method, key))
        return request()


class SlowStore(_Wrapped):
    """Waits before each request is carried out. `delay_ms` may be changed at any time."""

    def __init__(self, inner: ColdStore, delay_ms: float, sleep: Callable[[float], object]) -> None:
        super().__init__(inner)
        self.delay_ms = delay_ms
        self._sleep = sleep

    def _ask(self, method: str, key: str, request: Callable[[], T]) -> T:
        self._sleep(self.delay_ms / 1000)
        return super()._ask(method, key, request)


@dataclass(slots=True, kw_only=True)
class _Fault:
    method: str
    key: str
    nth: int
    times: int | None
    happened: bool
    seen: int = 0

    def due(self, method: str, key: str) -> bool:
        if not fnmatchcase(method, self.method) or not fnmatchcase(key, self.key):
            return False
        self.seen += 1
        return self.seen >= self.nth and (self.times is None or self.seen < self.nth + self.times)


class FailingStore(_Wrapped):
    """Raises ColdUnavailable when a rule says so."""

    def __init__(self, inner: ColdStore) -> None:
        super().__init__(inner)
        self._faults: list[_Fault] = []

    def fail(
        self, method: str = "*", key: str = "*", *, nth: int = 1, times: int | None = 1, happened: bool = False
    ) -> None:
        """From the nth matching request on, fail `times` of them (None: all until `mend`).

        Patterns are those of fnmatch. A failing request is not carried out, unless `happened` is set: then it is, and
        its answer is lost.
        """
        with self._mutex:
            self._faults.append(_Fault(method=method, key=key, nth=nth, times=times, happened=happened))

    def mend(self) -> None:
        """Remove every `fail`."""
        with self._mutex:
            self._faults.clear()

    def _ask(self, method: str, key: str, request: Callable[[], T]) -> T:
        with self._mutex:
            # Every fault counts every match, also if an earlier one already fails the request.
            due = [fault for fault in self._faults if fault.due(method, key)]
        if due and not due[0].happened:
            with self._mutex:
                self.calls.append((method, key))
            raise ColdUnavailable(key, "told to fail")
        result = super()._ask(method, key, request)
        if due:
            raise ColdUnavailable(key, "told to fail")
        return result
