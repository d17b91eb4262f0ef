"""An object store as cold store, through obstore: S3, Google Cloud Storage, Azure Blob Storage and compatible ones.

Credentials, region and endpoint come from the environment, under the names of each provider (AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL; GOOGLE_APPLICATION_CREDENTIALS; AZURE_STORAGE_ACCOUNT_NAME,
AZURE_STORAGE_ACCOUNT_KEY; or the role of the machine). http is used only for an endpoint given as http://.

Time: requests that fail or stall are repeated RETRIES times with growing pauses. A call (of a listing: each page) is
given up after `timeout_s`, plus the time for its bytes at BYTES_PER_S. An upload in parts then has `timeout_s` more to
be aborted. A call that was given up may still take effect in the store.

An upload of more than PART_BYTES goes in parts and appears when the last has arrived. It is aborted when it fails or
takes too long. If the process is killed, or the store does not answer, parts remain that are invisible but paid for:
set a lifecycle rule on the bucket that drops incomplete uploads.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from storage.errors import OpenError
from storage.platform import FileSystem, Readable
from storage.segments.tiering.store import (
    ColdError,
    ColdMissing,
    ColdUnavailable,
    check_key,
    check_prefix,
    check_range,
    is_key,
)

if TYPE_CHECKING:
    from obstore.store import AzureStore, ClientConfig, GCSStore, RetryConfig, S3Store

    Remote = S3Store | GCSStore | AzureStore

T = TypeVar("T")

SCHEMES = ("s3", "gs", "az")
TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
#: With pauses that at most double from 0.1 s, so that a lasting error is reported within seconds.
RETRIES = 4
#: The slowest transfer that a call waits for.
BYTES_PER_S = 1 << 20
#: Larger objects are uploaded in parts of this size, this many at once: the memory of an upload.
PART_BYTES = 8 << 20
PARTS_AT_ONCE = 4

#: The parts of an error's text that are passed on: an HTTP status, a network error, a word such as SlowDown.
_STATUS = re.compile(r"\b(?:status|HTTP status)[^0-9\n]{0,40}([1-5]\d\d)\b|\b([45]\d\d) [A-Z][a-z]+")
_NETWORK = re.compile(r"HttpError \{\s*kind: ([A-Za-z]{1,20})")
_CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
#: Codes of a bucket that does not exist, which say nothing about an object.
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")


class ObjectStore:
    """ColdStore in a bucket (storage/segments/tiering/store.py says what each call promises)."""

    def __init__(self, remote: Remote, location: str, fs: FileSystem, timeout_s: float) -> None:
        self._remote = remote
        self._location = location
        self._fs = fs
        self._timeout_s = timeout_s

    def put(self, key: str, path: str) -> None:
        check_key(key)
        try:
            source = self._fs.open(path, write=False)
        except OSError as error:
            raise ColdUnavailable(key, f"the local file cannot be read: {error.strerror}") from error
        try:
            self.put_from(key, source)
        finally:
            source.close()

    def put_from(self, key: str, source: Readable) -> None:
        check_key(key)
        try:
            size = source.size()
            if size <= PART_BYTES:
                self._put_small(key, b"".join(_pieces(source, size)))
            else:
                self._put_large(key, source, size)
        except OSError as error:
            raise ColdUnavailable(key, f"the local file cannot be read: {error.strerror}") from error

    def put_bytes(self, key: str, data: bytes) -> None:
        self._put_small(check_key(key), data)

    def get(self, key: str) -> bytes:
        check_key(key)

        async def whole() -> bytes:
            async with asyncio.timeout(self._timeout_s) as limit:
                found = await self._remote.get_async(key)
                limit.reschedule((limit.when() or 0) + found.meta["size"] / BYTES_PER_S)
                return bytes(await found.bytes_async())

        return self._call(key, whole)

    def get_range(self, key: str, offset: int, size: int) -> bytes:
        check_key(key)
        check_range(offset, size)
        if not size:
            return b""

        async def part() -> bytes:
            async with asyncio.timeout(self._allowed_s(size)):
                try:
                    return bytes(await self._remote.get_range_async(key, start=offset, length=size))
                except FileNotFoundError:
                    raise
                except Exception:
                    # Stores refuse a range that begins after the end, each with another error.
                    if await self._ends_by(key, offset):
                        return b""
                    raise

        return self._call(key, part)

    def size(self, key: str) -> int:
        check_key(key)

        async def head() -> int:
            async with asyncio.timeout(self._timeout_s):
                try:
                    return (await self._remote.head_async(key))["size"]
                except FileNotFoundError:
                    # That answer has no text: only a second request tells a missing bucket from a missing object.
                    return (await self._remote.get_async(key)).meta["size"]

        return self._call(key, head)

    def delete(self, key: str) -> None:
        check_key(key)

        async def drop() -> None:
            async with asyncio.timeout(self._timeout_s):
                await self._remote.delete_async(key)

        try:
            self._call(key, drop)
        except ColdMissing:
            return

    def list(self, prefix: str) -> list[str]:
        check_prefix(prefix)

        async def pages() -> list[str]:
            found: list[str] = []
            # One of its overloads names a type that is not installed.
            stream = self._remote.list(prefix or None)  # pyright: ignore[reportUnknownMemberType]
            while True:
                try:
                    async with asyncio.timeout(self._timeout_s):
                        page = await anext(stream)
                except StopAsyncIteration:
                    return sorted(found)
                found += (entry["path"] for entry in page)

        return [key for key in self._call(prefix, pages) if is_key(key)]

    def describe(self) -> str:
        return self._location

    # ---- steps

    async def _ends_by(self, key: str, offset: int) -> bool:
        """Whether the object is known to have no byte at `offset`."""
        try:
            return (await self._remote.head_async(key))["size"] <= offset
        except Exception:
            return False

    def _put_small(self, key: str, data: bytes) -> None:
        async def send() -> None:
            async with asyncio.timeout(self._allowed_s(len(data))):
                await self._remote.put_async(key, data, use_multipart=False)

        self._call(key, send)

    def _put_large(self, key: str, source: Readable, size: int) -> None:
        unread: list[OSError] = []
        given_up = threading.Event()

        def read() -> Iterator[bytes]:
            try:
                yield from _pieces(source, size)
            except OSError as error:
                unread.append(error)
                raise

        def pieces() -> Iterator[bytes]:
            for piece in read():
                # An upload that lacks a piece is aborted with its parts; a cancelled one is not.
                if given_up.is_set():
                    raise TimeoutError
                yield piece

        async def upload() -> None:
            await self._remote.put_async(
                key,
                pieces(),
                use_multipart=True,
                chunk_size=PART_BYTES,
                max_concurrency=PARTS_AT_ONCE,
            )

        async def send() -> None:
            uploading = asyncio.ensure_future(upload())
            await asyncio.wait([uploading], timeout=self._allowed_s(size))
            given_up.set()
            async with asyncio.timeout(self._timeout_s):
                await uploading

        try:
            self._call(key, send)
        except ColdError:
            if unread:
                raise unread[0] from None
            raise

    def _call(self, key: str, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work` in an event loop of this thread, so that a request can be given up. Raises ColdError."""

        async def run() -> T:
            return await work()

        try:
            return asyncio.run(run())
        except Exception as error:
            failure = self._failure(key, error)
        # Outside the except: the original error, with the store's text, must not become the context.
        raise failure

    def _failure(self, key: str, error: Exception) -> ColdError:
        text = str(error)
        network = _NETWORK.search(text)
        if isinstance(error, TimeoutError) or (network and network[1] == "Timeout"):
            return ColdUnavailable(key, f"no answer in time (timeout {self._timeout_s:g} s)")
        code = _CODE.search(text)
        if isinstance(error, FileNotFoundError) and not (code and code[1] in _NO_BUCKET):
            return ColdMissing(key)
        status = _STATUS.search(text)
        said = [f"HTTP {status[1] or status[2]}"] if status else []
        said += [code[1]] if code else []
        said += [network[1]] if network else []
        kind = type(error).__name__.removesuffix("Error")
        return ColdUnavailable(key, f"{kind} error" + (f" ({', '.join(said)})" if said else ""))

    def _allowed_s(self, size: int) -> float:
        return self._timeout_s + size / BYTES_PER_S


def open_url(url: str, fs: FileSystem, timeout_s: float = TIMEOUT_S) -> ObjectStore:
    """The store at s3://bucket/prefix, gs:// or az://. Makes no request. Raises ValueError, or OpenError."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("a cold store's address is no URL") from None
    if parts.scheme not in SCHEMES or not parts.netloc or timeout_s <= 0:
        raise ValueError(f"a cold store's address is {', '.join(f'{name}://bucket/prefix' for name in SCHEMES)}")
    if "@" in parts.netloc or parts.query or parts.fragment:
        # The address is not shown: it may contain a credential.
        raise ValueError("a cold store's address has no user, query or fragment; credentials go into the environment")
    prefix = check_prefix(parts.path.strip("/"))
    try:
        from obstore.exceptions import BaseError
    except ModuleNotFoundError:
        raise OpenError(
            f"A cold tier at {parts.scheme}:// needs the extra `cold`: pip install 'topics-broker[cold]'"
        ) from None
    try:
        remote = _remote(parts.scheme, parts.netloc, prefix or None, timeout_s)
    except (BaseError, ValueError):
        remote = None
    if remote is None:
        raise OpenError(
            f"The cold store {parts.scheme}://{parts.netloc} cannot be opened: the settings in the environment "
            "(AWS_*, GOOGLE_*, AZURE_*) are incomplete or wrong."
        )
    location = f"{parts.scheme}://{parts.netloc}" + (f"/{prefix}" if prefix else "")
    return ObjectStore(remote, location, fs, timeout_s)


def _remote(scheme: str, bucket: str, prefix: str | None, timeout_s: float) -> Remote:
    from obstore.store import AzureStore, GCSStore, S3Store

    options: ClientConfig = {
        "allow_http": True,
        "connect_timeout": _duration(min(timeout_s / 2, CONNECT_TIMEOUT_S)),
        # A stalled connection is given up in time for another attempt.
        "read_timeout": _duration(timeout_s / 2),
        # Slow is not stalled: each call has its own limit.
        "timeout": "1day",
    }
    retries: RetryConfig = {"max_retries": RETRIES}
    if scheme == "s3":
        return S3Store(bucket, prefix=prefix, client_options=options, retry_config=retries)
    if scheme == "gs":
        return GCSStore(bucket, prefix=prefix, client_options=options, retry_config=retries)
    return AzureStore(bucket, prefix=prefix, client_options=options, retry_config=retries)


def _duration(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000))}ms"


def _pieces(source: Readable, size: int) -> Iterator[bytes]:
    """A local file's bytes. Raises OSError, also when the file has become shorter: a part is never put."""
    offset = 0
    while offset < size:
        piece = source.pread(min(PART_BYTES, size - offset), offset)
        if not piece:
            raise OSError(None, f"it ends at {offset}, not at {size}")
        yield piece
        offset += len(piece)
