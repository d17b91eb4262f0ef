"""Carries out the requests of the protocol in a real store: S3, Azure Blob Storage, Google Cloud Storage, by obstore.

Each request is made once: obstore's own retries are off, because the protocol decides what may be repeated. A request
without an answer after `timeout_s` is `Unanswered`, and so is every error except those that answer the question: the
object exists already, or there is none. A create of many bytes has more time, and a read goes on while bytes arrive
(`limits`). obstore has limits of clients, not of requests, so there are several clients. Credentials come from the
environment, like those of the cold tier. No text from the store is passed on.

`run` blocks and may be called in several threads. Source: docs/reference/bucket.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from storage.bucket import limits
from storage.bucket.limits import TIMEOUT_S
from storage.bucket.reasons import lacks_bucket, reason
from storage.bucket.requests import (
    Create,
    Delete,
    Get,
    GetMany,
    GetRange,
    Names,
    Put,
    Request,
    SomeNames,
    Stat,
    Unanswered,
    Wait,
)
from storage.bucket.times import RequestTimes
from storage.platform import Clock

if TYPE_CHECKING:
    from obstore.store import AzureStore, ClientConfig, GCSStore, RetryConfig, S3Store

    Remote = S3Store | GCSStore | AzureStore

T = TypeVar("T")

CONNECT_TIMEOUT_S: Final = 2.0
#: The names of a listing that are held at a time: as many as stores answer with at a time.
_PAGE: Final = 1000
#: The requests of one `GetMany` at a time, over all callers.
AT_ONCE: Final = 16


class Bucket(Protocol):
    """A store. Each call blocks, raises Unanswered, and carries out the request of that name."""

    def create(self, key: str, data: bytes) -> bool: ...

    def get(self, key: str) -> bytes | None: ...

    def get_range(self, key: str, offset: int, size: int) -> bytes | None: ...

    def put(self, key: str, data: bytes) -> None: ...

    def delete(self, keys: Sequence[str]) -> None: ...

    def stored_at(self, key: str) -> float | None: ...

    def names(self, prefix: str) -> Iterable[str]:
        """Those of a page of the listing at a time; Unanswered may also be raised between two of them."""
        ...


class Driver:
    """Runs steps against a store."""

    def __init__(self, bucket: Bucket, clock: Clock, times: RequestTimes | None = None) -> None:
        """`times`: where requests are counted, for several drivers together."""
        self.bucket = bucket
        self.times = times or RequestTimes()
        self._clock = clock
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="bucket")
        self._closing = threading.Event()

    def run(self, steps: Generator[Request, Any, T]) -> T:
        """What the steps return; raises what they raise."""
        try:
            request = next(steps)
            while True:
                try:
                    answer = self._answer(request)
                except Unanswered as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as end:
            return end.value

    def closed_within(self, seconds: float) -> bool:
        """Wait that long, or until it is closed; whether it is."""
        return self._closing.wait(seconds)

    def interrupt(self) -> None:
        """Steps that are under way, and all that follow, end with Unanswered, behind the request in progress."""
        self._closing.set()

    def close(self) -> None:
        """Steps that are under way end with Unanswered. Blocks until requests under way have ended."""
        self._closing.set()
        self._pool.shutdown(cancel_futures=True)

    def _answer(self, request: Request) -> Any:
        if isinstance(request, Wait):
            if request.seconds > 0 and self._closing.wait(request.seconds):
                raise Unanswered("closed")
            return self._clock.monotonic_ns() / 1e9
        if self._closing.is_set():
            raise Unanswered("closed")
        match request:
            case Create(key, data):
                return self._timed("create", lambda: self.bucket.create(key, data))
            case Get(key):
                return self._timed("get", lambda: self.bucket.get(key))
            case GetMany(several):
                return list(self._pool.map(self._get_or_error, several))
            case GetRange(key, offset, size):
                return self._timed("get", lambda: self.bucket.get_range(key, offset, size))
            case Put(key, data):
                return self._timed("put", lambda: self.bucket.put(key, data))
            case Delete(several):
                return self._timed("delete", lambda: self.bucket.delete(several))
            case Stat(key):
                return self._timed("stat", lambda: self.bucket.stored_at(key))
            case Names(prefix):
                return self._timed("names", lambda: list(self.bucket.names(prefix)))
            case SomeNames(prefix, wanted, most):
                return self._timed("names", lambda: list(islice(filter(wanted, self.bucket.names(prefix)), most)))

    def _get_or_error(self, key: str) -> bytes | Unanswered | None:
        try:
            return self._timed("get", lambda: self.bucket.get(key))
        except Unanswered as error:
            return error

    def _timed(self, kind: str, request: Callable[[], T]) -> T:
        began = self._clock.monotonic_ns()
        try:
            answer = request()
        except Unanswered:
            self.times.failed(kind)
            raise
        self.times.answered(kind, (self._clock.monotonic_ns() - began) / 1e9)
        return answer


class RemoteBucket:
    """A store through obstore."""

    def __init__(self, client: Callable[[ClientConfig], Remote], timeout_s: float) -> None:
        """`client`: makes a client with these limits."""
        self._client = client
        self._timeout_s = timeout_s
        self._remote = client(_limits(timeout_s, timeout_s))
        # Its second limit is of a time without a byte; while a body is sent, that would be all of the time.
        self._reading = client({**_limits(limits.READ_S, timeout_s), "read_timeout": _duration(timeout_s)})
        #: By how long a request may take.
        self._creating = {timeout_s: self._remote}
        self._lock = threading.Lock()

    def create(self, key: str, data: bytes) -> bool:
        from obstore.exceptions import AlreadyExistsError

        try:
            self._for_bytes(len(data)).put(key, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        except Exception as error:
            raise _unanswered(error) from None
        return True

    def _for_bytes(self, size: int) -> Remote:
        """The client for a create of so many bytes."""
        allowed_s = limits.create_s(size, self._timeout_s)
        with self._lock:
            if allowed_s not in self._creating:
                self._creating[allowed_s] = self._client(_limits(allowed_s, self._timeout_s))
            return self._creating[allowed_s]

    def get(self, key: str) -> bytes | None:
        try:
            return bytes(self._reading.get(key).bytes())
        except FileNotFoundError as error:
            if lacks_bucket(error):
                raise _unanswered(error) from None
            return None
        except Exception as error:
            raise _unanswered(error) from None

    def get_range(self, key: str, offset: int, size: int) -> bytes | None:
        try:
            return bytes(self._reading.get_range(key, start=offset, length=size))
        except FileNotFoundError as error:
            if lacks_bucket(error):
                raise _unanswered(error) from None
            return None
        except Exception as error:
            raise _unanswered(error) from None

    def put(self, key: str, data: bytes) -> None:
        try:
            self._remote.put(key, data, use_multipart=False)
        except Exception as error:
            raise _unanswered(error) from None

    def delete(self, keys: Sequence[str]) -> None:
        try:
            self._remote.delete(list(keys))
        except FileNotFoundError:
            if len(keys) > 1:  # the others may be there still
                for key in keys:
                    self.delete([key])
        except Exception as error:
            raise _unanswered(error) from None

    def stored_at(self, key: str) -> float | None:
        try:
            return self._remote.head(key)["last_modified"].timestamp()
        except FileNotFoundError:
            return None
        except Exception as error:
            raise _unanswered(error) from None

    def names(self, prefix: str) -> Iterator[str]:
        folder, _, start = prefix.rpartition("/")
        try:
            pages = self._remote.list(folder or None, chunk_size=_PAGE)  # pyright: ignore[reportUnknownMemberType]
            for page in pages:
                for key in (entry["path"] for entry in page):
                    if key.rpartition("/")[2].startswith(start):
                        yield key
        except Exception as error:
            raise _unanswered(error) from None


def open_bucket(scheme: str, bucket: str, prefix: str | None, timeout_s: float = TIMEOUT_S) -> RemoteBucket:
    """The store at s3://bucket/prefix, gs:// or az://. Makes no request. Raises obstore's errors for incomplete or
    wrong settings in the environment. `timeout_s`: see `limits`."""
    from obstore.store import AzureStore, GCSStore, S3Store

    kinds: dict[str, type[S3Store | GCSStore | AzureStore]] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
    once: RetryConfig = {"max_retries": 0}

    def client(options: ClientConfig) -> Remote:
        return kinds[scheme](bucket, prefix=prefix, client_options=options, retry_config=once)

    return RemoteBucket(client, timeout_s)


def _limits(allowed_s: float, timeout_s: float) -> ClientConfig:
    """Of a client whose requests may take so long."""
    return {
        "allow_http": True,
        "connect_timeout": _duration(min(CONNECT_TIMEOUT_S, timeout_s)),
        "timeout": _duration(allowed_s),
    }


def _duration(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000))}ms"


def _unanswered(error: Exception) -> Unanswered:
    """Without the store's text, which may repeat a credential."""
    return Unanswered(reason(error))
