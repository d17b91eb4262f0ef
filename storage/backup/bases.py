"""The content of a base in a bucket: a backup without the log, which is in slots.

    BaseTarget    puts it there; a `storage.backup.taking.Target`
    lay_out_base  makes a data directory of it; with the slots behind it, a start of the engine completes it
    copy_of_base  shows its files without making a directory

    part-<n>      the snapshot, FORMAT, every .idx and the .data of segments still appended to, one behind the other, in
                  parts of PART_BYTES
    chunks/...    whole chunks of these .idx and .data, by a digest of their bytes
    segments/...  .data of sealed segments
    content       the manifest of a backup, which says what is where; `chunks` says it of chunks

All keys are new in each base, with two exceptions: a segment that an earlier base has stored with the same records
keeps its key there, and so does a chunk with the same bytes. (Deletions may differ: the .idx of each base has them.) So
a base costs what is new, and no more than a chunk for each file that goes on.

Cold segments are named like others, and are not read: an earlier base has stored them (`NamedTier`). Packed segments
are not supported.

A base of a running owner compares each frame with its checksum before it stores new bytes of a segment, because slots
with better ones may be deleted behind it (docs/adr/0156).
Source: docs/reference/bucket.md.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import lru_cache, partial
from hashlib import blake2b
from operator import attrgetter
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgspec
from xxhash import xxh3_64_hexdigest

from storage.backup import manifest as files
from storage.backup.copies import Copy, CopyFileSystem, Extent
from storage.backup.copying import CHUNK_BYTES as READ_BYTES
from storage.backup.copying import Going, Source
from storage.backup.damage import Damage, damaged_seqs
from storage.backup.errors import BackupDamaged, BackupFailed
from storage.backup.manifest import Manifest, Piece, Shared
from storage.backup.restoring import NewFiles, segment_of
from storage.bucket import Body, Named, lay_out
from storage.format import ENTRY_SIZE, SnapshotDamaged, idx_entry, segment_frame, snapshot_header
from storage.log import position
from storage.platform import FileSystem, ensure_dir, layout, read_laid_out, replace_file, write_laid_out, write_whole
from storage.segments import SegmentId, names
from storage.segments.tiering import NamedObject

PART_BYTES: Final = 8 << 20
CONTENT: Final = "content"
CHUNKS: Final = "chunks"
CHUNK_BYTES: Final = 256 << 10

#: Called before bytes [begin, end) of a file are stored that no earlier base has stored.
Check: TypeAlias = Callable[[int, int], None]


def _no_check(_begin: int, _end: int) -> None:
    pass


class Readable(Protocol):
    """The objects of a cell. Each call blocks."""

    def get(self, named: Named) -> bytes:
        """Return the whole object. Raises OSError, also if it is missing or has other bytes."""
        ...


class Objects(Readable, Protocol):
    """The objects of a cell. Each call blocks. OSError means that the outcome is unknown."""

    def create(self, key: str, data: bytes) -> Named:
        """Create the object. Its key is used for nothing else."""
        ...


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """So many bytes of a file, from `begin` on, are an object."""

    path: str
    begin: int
    key: str


class BaseTarget:
    """Stores the content of one base. `named`: its objects, when it is complete."""

    def __init__(
        self,
        objects: Objects,
        cell: str,
        name: str,
        known: Iterable[Named],
        fs: FileSystem,
        root: str,
        going: Going,
        chunk_bytes: int = CHUNK_BYTES,
        on_damage: Callable[[Damage], None] | None = None,
    ) -> None:
        """`name`: used by no other base. `known`: objects of bases that stay. `root`: the data directory. `on_damage`:
        is called before damaged bytes of a segment are stored, and may raise; None: nothing is compared."""
        self._objects = objects
        self._cell = cell
        self._fs = fs
        self._directory = root
        self._going = going
        self._on_damage = on_damage
        #: Segments by their identity, chunks by their digest. Their keys have the name of their base after that.
        folders = (f"{cell}/{files.SEGMENTS}/", f"{cell}/{CHUNKS}/")
        self._known = {each.key.rpartition(".")[0]: each for each in known if each.key.startswith(folders)}
        self._name = name
        self._part = bytearray()
        self._parts = 0
        self._end = 0
        self.number = 0
        self.root = f"{cell}/{name}"
        self.named: dict[str, Named] = {}
        self.pieces: list[Piece] = []
        self._chunks: list[Chunk] = []
        self._chunk_bytes = chunk_bytes
        self.shared: dict[SegmentId, Shared] = {}
        self.copied_bytes = 0
        self.reused_bytes = 0

    def open(self) -> None:
        for path in (layout.FORMAT, layout.join("meta", layout.LAID_OUT)):
            if self._fs.exists(layout.join(self._directory, path)):
                with closing(self._fs.open(layout.join(self._directory, path), write=False)) as file:
                    self.add(path, file, 0, file.size())

    def close(self) -> None:
        """The objects of a base that was not completed stay, and nothing uses them."""

    def has(self, id: SegmentId) -> bool:
        """Whether the object was stored for this base. Keys say more than ids, so `share` decides."""
        return id in self.shared

    # -- what every base holds anew ----------------------------------------------------------------------------------

    def add(self, path: str, source: Source, begin: int, end: int) -> None:
        data = b"".join(_read(source, path, begin, end))
        if path.startswith("meta/") and layout.snapshot_numbers([path.removeprefix("meta/")]):
            _check_snapshot(path, data)
        self._add(path, begin, data)

    def add_bytes(self, path: str, data: bytes) -> None:
        self._add(path, 0, data)

    def add_data(self, id: SegmentId, idx: bytes, source: Source, size: int) -> None:
        path = files.data_path(id)
        data = self._read_segment(id, source, path, size)
        self._add(path, 0, data, self._check(id, idx, data))

    def _add(self, path: str, begin: int, data: bytes, check: Check = _no_check) -> None:
        """The chunks that files keep from base to base become objects of their own."""
        rest, size = begin, self._chunk_bytes
        if path.startswith(f"{names.TOPICS}/"):
            for at in range(begin, begin + len(data) - size + 1, size):
                self._add_chunk(path, at, data[at - begin : at - begin + size], check)
                rest = at + size
        if rest < begin + len(data) or rest == begin:
            check(rest, begin + len(data))
            self._add_piece(path, rest, data[rest - begin :])

    def _add_chunk(self, path: str, begin: int, data: bytes, check: Check) -> None:
        what = f"{self._cell}/{CHUNKS}/{blake2b(data, digest_size=16).hexdigest()}"
        named = self._known.get(what)
        if named is None:
            check(begin, begin + len(data))
            self._put(f"{what}.{self._name}", data)
            named = self._known[what] = self.named[f"{what}.{self._name}"]
            self.copied_bytes += len(data)
        else:
            self.named[named.key] = named
            self.reused_bytes += len(data)
        self._chunks.append(Chunk(path, begin, named.key))
        self._going.on(len(data))

    def _add_piece(self, path: str, begin: int, data: bytes) -> None:
        piece = Piece(path=path, begin=begin, offset=self._end, size=len(data), checksum=xxh3_64_hexdigest(data))
        self.pieces.append(piece)
        self._part += data
        self._end += len(data)
        self.copied_bytes += len(data)
        self._going.on(len(data))
        while len(self._part) >= PART_BYTES:
            self._put_part(PART_BYTES)

    def _put_part(self, size: int) -> None:
        self._put(f"{self.root}/part-{self._parts}", bytes(self._part[:size]))
        del self._part[:size]
        self._parts += 1

    def _put(self, key: str, data: bytes) -> None:
        self.named[key] = self._objects.create(key, data)

    @property
    def state_bytes(self) -> int:
        return self._end

    # -- what bases share --------------------------------------------------------------------------------------------

    def share(self, id: SegmentId, idx: bytes, source: Source, size: int) -> None:
        what = files.shared_file(id, files.identity_of(idx))
        named = self._known.get(f"{self._cell}/{what}")
        if named is not None and named.size == size:
            self.named[named.key] = named
            self.reused_bytes += size
        else:
            key = f"{self._cell}/{what}.{self._name}"
            data = self._read_segment(id, source, what, size)
            self._check(id, idx, data)(0, size)
            self._put(key, data)
            named = self._known[f"{self._cell}/{what}"] = self.named[key]
            self.copied_bytes += size
            self._going.on(size)
        name = named.key.removeprefix(f"{self._cell}/")
        self.shared[id] = Shared(
            topic_id=id.topic_id,
            first_seq=id.first_seq,
            gen=id.gen,
            file=name,
            size=size,
            checksum=f"{named.checksum:016x}",
        )

    def unreadable(self, id: SegmentId, error: str) -> None:
        if self._on_damage is not None:
            self._on_damage(Damage(id, [], error))

    def _read_segment(self, id: SegmentId, source: Source, what: str, size: int) -> bytes:
        try:
            return b"".join(_read(source, what, 0, size))
        except (OSError, BackupFailed) as error:
            if isinstance(error, BackupFailed) or error.errno == errno.EIO:
                self.unreadable(id, str(error))
            raise

    def _check(self, id: SegmentId, idx: bytes, data: bytes) -> Check:
        if self._on_damage is None:
            return _no_check
        on_damage, entries = self._on_damage, idx_entry.parse(idx)

        def check(begin: int, end: int) -> None:
            if seqs := damaged_seqs(id, entries, data, begin, end):
                on_damage(Damage(id, seqs))

        return check

    def segments(self) -> dict[SegmentId, NamedObject]:
        """The objects of the sealed segments that the base names."""
        keys = {id: f"{self._cell}/{each.file}" for id, each in self.shared.items()}
        return {id: NamedObject(key, self.named[key].size) for id, key in keys.items() if key in self.named}

    def commit(self, manifest: Manifest) -> int:
        if self._part:
            self._put_part(len(self._part))
        self._put(f"{self.root}/{CHUNKS}", msgspec.json.encode(self._chunks))
        data = files.encode(manifest)
        self._put(f"{self.root}/{CONTENT}", data)
        needed = {f"{self._cell}/{each.file}" for each in manifest.shared} | {each.key for each in self._chunks}
        self.named = {key: each for key, each in self.named.items() if key in needed or key.startswith(f"{self.root}/")}
        return len(data)


def lay_out_base(
    fs: FileSystem,
    root: str,
    cell: str,
    objects: Readable,
    named: Iterable[Named],
    log: Iterable[Body],
    redo: tuple[int, int],
    instant: tuple[int, int],
    *,
    install: Callable[[Named, str], bool] = lambda _named, _path: False,
    leave_cold: bool = False,
) -> None:
    """Make the empty directory `root` the state of a base with the log after it. Durable on return.

    `named`: the objects of the base; FORMAT alone for the first base of a cell. `log`: the slots from its redo slot on.
    `redo` and `instant`: file and offset of the log where recovery begins, and those that the segments are as of. What
    the log says about segments behind that is about files that nobody has: their records are still in the log.
    `install`: moves the bytes of an object to a path, if they are here, and says whether it did. `leave_cold`: without
    the .data of cold segments; otherwise they are to be made hot (`Options.make_hot`). Raises BackupDamaged, OSError.
    """
    by_key = {each.key: each for each in named}
    content = _content(by_key)
    ensure_dir(fs, root)
    if content is not None:
        _BaseFiles(fs, root, cell, objects, by_key, content).run(install, leave_cold=leave_cold)
    else:
        [format] = by_key.values()
        replace_file(fs, root, layout.FORMAT, objects.get(format))
    end = position(*lay_out(fs, root, log, redo))
    ensure_dir(fs, layout.meta_dir(root))
    before = [each for each in read_laid_out(fs, root) if each.stop > position(*redo)]
    write_laid_out(fs, root, [*before, range(position(*instant), end)])


def copy_of_base(
    root: str,
    cell: str,
    objects: Readable,
    named: Iterable[Named],
    read_at: Callable[[str, int, int], bytes],
) -> Copy:
    """The files of a base, without the log, as the directory `root`, a path that need not exist.

    `read_at` returns, for the key of an object, so many bytes from an offset on: of sealed segments, whose frames have
    checksums of their own. All other objects are read whole and compared. Raises BackupDamaged, OSError.
    """
    by_key = {each.key: each for each in named}
    content = _content(by_key)
    objects = _Remembered(objects)
    made = CopyFileSystem(root)
    if content is None:
        [format] = by_key.values()
        made.add(layout.FORMAT, _whole(objects, format, 0))
        return Copy(made, root, _no_index, lambda: None)
    base = _BaseFiles(made, root, cell, objects, by_key, content)
    for path, extents in base.extents().items():
        for each in extents:
            made.add(path, each)
    for id, each, _ in base.sealed():
        made.add(files.data_path(id), Extent(0, each.size, partial(_ranged, read_at, each.key)))
    return Copy(made, root, partial(_index_in, made, root), lambda: None)


class _Remembered:
    """The last few objects that were read. An index is read in many slices."""

    def __init__(self, objects: Readable) -> None:
        self.get = lru_cache(maxsize=8)(objects.get)


def _whole(objects: Readable, named: Named, begin: int) -> Extent:
    return Extent(begin, named.size, partial(_slice_of, objects, named))


def _slice_of(objects: Readable, named: Named, size: int, offset: int) -> bytes:
    return objects.get(named)[offset : offset + size]


def _ranged(read_at: Callable[[str, int, int], bytes], key: str, size: int, offset: int) -> bytes:
    return read_at(key, size, offset)


def _no_index(path: str) -> bytes:
    raise BackupDamaged(path, "the first base of a cell has no segments")


def _index_in(fs: FileSystem, root: str, path: str) -> bytes:
    with closing(fs.open(layout.join(root, path), write=False)) as file:
        return file.pread(file.size(), 0)


class Sealed(NamedTuple):
    """A sealed segment of a base, and the object with its .data."""

    id: SegmentId
    named: Named
    cold: bool


def are_damaged(
    damage: Damage, cell: str, named: Iterable[Named], objects: Readable, read_at: Callable[[str, int, int], bytes]
) -> bool:
    """Whether all these records are damaged in that base, too. Arguments as of `copy_of_base`. Raises BackupDamaged,
    OSError."""
    root = "/base"
    fs = copy_of_base(root, cell, objects, named, read_at).fs
    ids = [names.id_of_path(path) for path in fs.paths() if path.endswith(names.IDX)]
    its = [id for id in ids if id is not None and id.topic_id == damage.id.topic_id]
    indexes = {id: _index_in(fs, root, files.idx_path(id)) for id in its}
    return bool(damage.seqs) and all(_is_damaged(fs, root, indexes, seq) for seq in damage.seqs)


def _is_damaged(fs: FileSystem, root: str, indexes: Mapping[SegmentId, bytes], seq: int) -> bool:
    """False if it is sound, and if it is not there."""
    for id, idx in indexes.items():
        if 0 <= seq - id.first_seq < len(idx) // ENTRY_SIZE:
            entry = idx_entry.unpack(idx, seq - id.first_seq)
            with closing(fs.open(names.path(root, id, names.DATA), write=False)) as file:
                return entry.len > 0 and not segment_frame.verify(file.pread(entry.len, entry.offset), 0, entry.len)
    return False


def segments_of(cell: str, named: Iterable[Named], objects: Readable) -> list[Sealed]:
    """The sealed segments of a base. `named`: its objects. Raises OSError."""
    by_key = {each.key: each for each in named}
    content = _content(by_key)
    if content is None:
        return []
    try:
        return _sealed(cell, files.decode(objects.get(content)), by_key)
    except (msgspec.DecodeError, KeyError) as error:
        raise OSError(errno.EIO, f"{content.key} is damaged") from error


def _sealed(cell: str, manifest: Manifest, by_key: Mapping[str, Named]) -> list[Sealed]:
    cold = {tuple(each) for each in manifest.cold}
    return [
        Sealed(each.id, by_key[f"{cell}/{each.file}"], (each.topic_id, each.first_seq) in cold)
        for each in manifest.shared
    ]


def _content(by_key: Mapping[str, Named]) -> Named | None:
    """None: the first base of a cell."""
    return next((each for key, each in by_key.items() if key.endswith(f"/{CONTENT}")), None)


class _BaseFiles:
    def __init__(
        self,
        fs: FileSystem,
        root: str,
        cell: str,
        objects: Readable,
        named: Mapping[str, Named],
        content: Named,
    ) -> None:
        self._fs = fs
        self._root = root
        self._cell = cell
        self._objects = objects
        self._named = named
        self._folder = content.key.rpartition("/")[0]
        self._manifest = files.decode(objects.get(content))
        chunks = objects.get(named[f"{self._folder}/{CHUNKS}"])
        self._chunks = msgspec.json.decode(chunks, type=list[Chunk])
        self._indexes: dict[str, bytes] = {}

    def extents(self) -> dict[str, list[Extent]]:
        """The files that are not sealed segments, in order of their bytes."""
        state = self._state()
        found: dict[str, list[Extent]] = {}
        for piece in self._manifest.pieces:
            found.setdefault(piece.path, []).append(Extent(piece.begin, piece.size, partial(_part_of, state, piece)))
        for chunk in self._chunks:
            found.setdefault(chunk.path, []).append(_whole(self._objects, self._named[chunk.key], chunk.begin))
        for each in found.values():
            each.sort(key=attrgetter("begin"))
        return found

    def sealed(self) -> list[Sealed]:
        return _sealed(self._cell, self._manifest, self._named)

    def run(self, install: Callable[[Named, str], bool], *, leave_cold: bool) -> None:
        new = NewFiles(self._fs, self._root, self._index)
        extents = self.extents()
        for path, found in extents.items():
            if path.endswith(names.IDX):
                self._indexes[path] = b"".join(each.read(each.size, 0) for each in found)
        for path, found in extents.items():
            with closing(new.create(layout.join(self._root, path))) as file:
                if path in self._indexes:
                    write_whole(file, self._indexes[path], 0)
                else:
                    for each in found:
                        write_whole(file, each.read(each.size, 0), each.begin)
                if (id := segment_of(path)) is not None:
                    new.flag(file, id)
                file.sync()
        for id, named, cold in self.sealed():
            if cold and leave_cold:
                continue
            path = names.path(self._root, id, names.DATA)
            new.make_folder(path)
            installed = install(named, path)
            with closing(self._fs.open(path, create=not installed, exclusive=not installed)) as file:
                if not installed:
                    write_whole(file, self._objects.get(named), 0)
                new.flag(file, id)
                file.sync()
        new.sync()

    def _index(self, path: str) -> bytes:
        if path not in self._indexes:
            raise BackupDamaged(self._folder, f"it does not name {path}")
        return self._indexes[path]

    def _state(self) -> Callable[[Piece], bytes]:
        """Returns the bytes of a piece. Holds one part at a time, because pieces are in order."""
        held: dict[int, bytes] = {}

        def part(number: int) -> bytes:
            if number not in held:
                held.clear()
                held[number] = self._objects.get(self._named[f"{self._folder}/part-{number}"])
            return held[number]

        def read(piece: Piece) -> bytes:
            found, at, left = b"", piece.offset, piece.size
            while left:
                number, offset = divmod(at, PART_BYTES)
                data = part(number)[offset : offset + left]
                if not data:
                    break
                found, at, left = found + data, at + len(data), left - len(data)
            if left or xxh3_64_hexdigest(found) != piece.checksum:
                raise BackupDamaged(self._folder, f"{piece.path} is not whole")
            return found

        return read


def _part_of(state: Callable[[Piece], bytes], piece: Piece, size: int, offset: int) -> bytes:
    return state(piece)[offset : offset + size]


def _check_snapshot(path: str, data: bytes) -> None:
    """It was just written, and the next base has another one."""
    try:
        snapshot_header.check(data)
    except SnapshotDamaged as error:
        raise BackupFailed(f"{path} is damaged: {error}.", file=path) from error


def _read(source: Source, what: str, begin: int, end: int) -> Iterable[bytes]:
    at = begin
    while at < end:
        data = source.pread(min(READ_BYTES, end - at), at)
        if not data:
            raise BackupFailed(f"{what} ends after {at} bytes, and {end} should be there.", file=what)
        yield data
        at += len(data)
