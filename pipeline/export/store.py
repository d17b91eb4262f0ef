"""Stores for exports: a directory, or a bucket. Keys are relative paths with `/`.

Exactly-once depends on `create`, which puts an object atomically if none exists, and returns whether it did. A
directory implements it by link(2) of a synced file, a bucket by If-None-Match. `prove` checks at the start that it
works.

Source: docs/guides/spark.md#exporting.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any, Protocol, cast

from pipeline.errors import BadOption, StoreRefused

_SCHEMES = ("s3", "gs", "az", "abfss")
#: The folder of manifests, plans and unfinished files. Spark skips names that begin with _.
META = "_topics"
TMP = f"{META}/_tmp"


class Store(Protocol):
    """Objects by key. All calls raise StoreRefused if the store fails."""

    #: The location of the store, a path or a URL.
    url: str

    def create(self, key: str, data: bytes) -> bool:
        """Put an object if none exists; False: one exists. Durable on return. Readers never see a part of it."""
        ...

    def replace(self, key: str, data: bytes) -> None:
        """Put an object, or replace it. Only for plans, which decide nothing."""
        ...

    def read(self, key: str) -> bytes | None:
        """The object; None: it does not exist."""
        ...

    def size(self, key: str) -> int | None:
        """The size in bytes; None: it does not exist."""
        ...

    def list(self, prefix: str) -> list[tuple[str, float]]:
        """(key, time of the put in seconds since the epoch) of all objects below the folder `prefix`, sorted."""
        ...

    def delete(self, key: str) -> None:
        """Delete an object, if it exists."""
        ...

    def move(self, source: str, target: str) -> None:
        """Rename an object, durably. Readers never see a part of it. A repetition does nothing."""
        ...

    def sync(self, key: str) -> None:
        """Make an object durable that a library has put, if it exists."""
        ...

    def writing(self, key: str) -> contextlib.AbstractContextManager[IO[bytes]]:
        """A file to write. If the block succeeds, it becomes the object `key`, durably, and never replaces another."""
        ...

    def local(self, key: str) -> contextlib.AbstractContextManager[str]:
        """A path where the object can be read within the block."""
        ...


def open_store(location: str, *, make: bool = True) -> Store:
    """The store at a path or a URL (s3://, gs://, az://, abfss://). Raises BadOption, StoreRefused.

    `make`: whether a directory that does not exist is made. Without it, the store is empty.
    """
    if not location.strip():
        raise BadOption("--to is empty: name a directory, or a URL such as s3://BUCKET/path.")
    path = path_of(location)
    scheme, found, rest = path.partition("://")
    if not found:
        return Directory(Path(path).absolute(), make=make)
    if scheme not in _SCHEMES:
        raise BadOption(f"--to must be a directory or a URL of {', '.join(_SCHEMES)}, not {scheme}://.")
    if not rest.strip("/"):
        raise BadOption(f"--to {location} names no bucket: write {scheme}://BUCKET/path.")
    return Bucket(location)


def why(store: Store, error: BaseException) -> str:
    """What an error of a library says, in one line. Of a bucket only its kind: the text may contain credentials."""
    text = " ".join(str(error).split())
    return type(error).__name__ if "://" in store.url or not text else f"{type(error).__name__}: {text.rstrip('.')}"


def path_of(location: str) -> str:
    """The path of a `file:` URL; any other location as it is. Pure."""
    if not location.startswith("file:/"):
        return location
    path = location.removeprefix("file:").removeprefix("//")
    path = path.removeprefix("localhost") if path.startswith("localhost/") else path
    return f"/{path.lstrip('/')}" if path.startswith("/") else path


def prove(store: Store) -> None:
    """Check that the store refuses a second create. Raises StoreRefused if it does not."""
    key = f"{TMP}/probe-{uuid.uuid4().hex}"
    try:
        if not store.create(key, b"first") or store.create(key, b"second") or store.read(key) != b"first":
            raise StoreRefused(
                "The store does not refuse to create an object that exists. Concurrent or killed exporters would write "
                "records twice: use another store."
            )
    finally:
        store.delete(key)


class Directory:
    """A local directory, or one on a file system that has link(2)."""

    def __init__(self, root: Path, *, make: bool = True) -> None:
        self._root = root
        self.url = str(root)
        try:
            if root.exists() and not root.is_dir():
                raise BadOption(f"--to {root} is a file, and must be a directory.")
            if make:
                (root / TMP).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreRefused(f"--to {root} cannot be created or opened: {error.strerror}.") from error

    def create(self, key: str, data: bytes) -> bool:
        target = self._folder_of(key)
        tmp = self._root / TMP / uuid.uuid4().hex
        try:
            with tmp.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(tmp, target)
            except FileExistsError:
                return False
            _sync(target.parent)
        except OSError as error:
            raise StoreRefused(f"{target} cannot be written: {error.strerror}.") from error
        finally:
            with contextlib.suppress(OSError):
                tmp.unlink()
        return True

    def replace(self, key: str, data: bytes) -> None:
        target = self._folder_of(key)
        tmp = self._root / TMP / uuid.uuid4().hex
        with _refusing(target):
            tmp.write_bytes(data)
            tmp.replace(target)

    def read(self, key: str) -> bytes | None:
        with _refusing(self._root / key):
            try:
                return (self._root / key).read_bytes()
            except FileNotFoundError:
                return None

    def size(self, key: str) -> int | None:
        with _refusing(self._root / key):
            try:
                return (self._root / key).stat().st_size
            except FileNotFoundError:
                return None

    def list(self, prefix: str) -> list[tuple[str, float]]:
        found: list[tuple[str, float]] = []
        with _refusing(self._root / prefix):
            for folder, _, names in os.walk(self._root / prefix, onerror=_unless_missing):
                for name in names:
                    path = Path(folder, name)
                    with contextlib.suppress(FileNotFoundError):
                        found.append((path.relative_to(self._root).as_posix(), path.stat().st_mtime))
        return sorted(found)

    def delete(self, key: str) -> None:
        with _refusing(self._root / key):
            (self._root / key).unlink(missing_ok=True)

    def move(self, source: str, target: str) -> None:
        path = self._folder_of(target)
        with _refusing(path):
            with contextlib.suppress(FileExistsError):
                try:
                    os.link(self._root / source, path)
                except FileNotFoundError:
                    return  # another run has moved it
            _sync(path.parent)
            (self._root / source).unlink(missing_ok=True)

    def sync(self, key: str) -> None:
        path = self._root / key
        with _refusing(path), contextlib.suppress(FileNotFoundError):
            sync_file(path)

    @contextlib.contextmanager
    def writing(self, key: str) -> Generator[IO[bytes]]:
        target = self._folder_of(key)
        with _refusing(target):
            with target.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _sync(target.parent)

    @contextlib.contextmanager
    def local(self, key: str) -> Generator[str]:
        yield str(self._root / key)

    def _folder_of(self, key: str) -> Path:
        target = self._root / key
        missing: list[Path] = []
        folder = target.parent
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for each in reversed(missing):
            with _refusing(each):
                each.mkdir(exist_ok=True)
                _sync(each.parent)
        return target


@contextlib.contextmanager
def _refusing(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise StoreRefused(f"{where} cannot be used: {error.strerror or error}.") from error


def _unless_missing(error: OSError) -> None:
    """A folder that is not there has no files. In one that cannot be read, some would go unseen."""
    if not isinstance(error, FileNotFoundError):
        raise error


def sync_file(path: Path) -> None:
    """Make a written file and its name durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Bucket:
    """A bucket of an object store, through obstore; credentials come from the environment."""

    def __init__(self, url: str) -> None:
        try:
            import obstore
            from obstore.exceptions import AlreadyExistsError, PreconditionError
            from obstore.store import from_url
        except ModuleNotFoundError as error:
            raise StoreRefused(
                "Exports to a bucket need the extra `cold`: pip install 'topics-broker[cold]'"
            ) from error
        self._api: Any = obstore
        scheme, _, rest = url.partition("://")
        #: With single slashes: the libraries of tables would otherwise have other keys than this store.
        self.url = f"{scheme}://{'/'.join(each for each in rest.split('/') if each)}"
        self._taken = (AlreadyExistsError, PreconditionError)
        try:
            self._remote: Any = cast("Any", from_url)(self.url, client_options={"allow_http": True})
        except Exception as error:
            raise StoreRefused(f"The bucket of --to cannot be opened: {type(error).__name__}.") from error

    def create(self, key: str, data: bytes) -> bool:
        try:
            self._api.put(self._remote, key, data, mode="create", use_multipart=False)
        except self._taken:
            # It may be from an earlier try whose answer was lost: the content shows that.
            return self.read(key) == data
        except Exception as error:
            if self.read(key) == data:
                return True
            raise self._refused(key, error) from error
        return True

    def replace(self, key: str, data: bytes) -> None:
        with self._asking(key):
            self._api.put(self._remote, key, data, use_multipart=False)

    def read(self, key: str) -> bytes | None:
        with self._asking(key):
            try:
                return bytes(self._api.get(self._remote, key).bytes())
            except FileNotFoundError:
                return None

    def size(self, key: str) -> int | None:
        with self._asking(key):
            try:
                return int(self._api.head(self._remote, key)["size"])
            except FileNotFoundError:
                return None

    def list(self, prefix: str) -> list[tuple[str, float]]:
        with self._asking(prefix):
            pages: list[Any] = list(self._api.list(self._remote, prefix=prefix))
            return sorted((each["path"], each["last_modified"].timestamp()) for page in pages for each in page)

    def delete(self, key: str) -> None:
        with self._asking(key), contextlib.suppress(FileNotFoundError):
            self._api.delete(self._remote, key)

    def move(self, source: str, target: str) -> None:
        with self._asking(target), contextlib.suppress(FileNotFoundError):
            self._api.copy(self._remote, source, target)  # within the store, and atomic
            self._api.delete(self._remote, source)

    def sync(self, key: str) -> None:
        pass  # a put is durable when it is answered

    @contextlib.contextmanager
    def writing(self, key: str) -> Generator[IO[bytes]]:
        with tempfile.TemporaryFile() as file:
            yield file
            file.seek(0)
            with self._asking(key):
                self._api.put(self._remote, key, file)

    @contextlib.contextmanager
    def local(self, key: str) -> Generator[str]:
        with tempfile.NamedTemporaryFile() as file:
            data = self.read(key)
            if data is None:
                raise StoreRefused(f"The bucket has no object {key}.")
            file.write(data)
            file.flush()
            yield file.name

    @contextlib.contextmanager
    def _asking(self, key: str) -> Generator[None]:
        try:
            yield
        except StoreRefused:
            raise
        except Exception as error:
            raise self._refused(key, error) from error

    def _refused(self, key: str, error: Exception) -> StoreRefused:
        # Not the text of the error: it may contain credentials.
        return StoreRefused(f"The bucket cannot be used for {key}: {type(error).__name__}.")
