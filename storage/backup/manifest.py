"""The layout of a backup directory, and the format of its manifests. Pure.

    BACKUP_DIR/
      TOPICS-BACKUP                           the version of this layout, and the id of the cluster that is backed up
      .lock                                   held while a backup is written or restored
      manifest-<n, 16 digits>.json            one a backup; the two newest are kept, and files that they name
      state-<n, 16 digits>.bin                the parts that each backup writes anew, in order: the log from where the
                                              snapshot begins up to the instant, the snapshot, every .idx, and the
                                              .data of segments still appended to
      segments/<topic_id, 16 hex>/seg-<first_seq>[.<gen>].data.<identity, 16 hex>
                                              .data of sealed segments, shared by all backups that name it

A manifest has two lines: a JSON object, and the XXH3-64 of the first line as 16 hex digits. It is renamed into place
when all files that it names are durable; without a manifest there is no backup. `identity` is a hash of the place and
time of each record of the segment, so that a file is reused only for the same records. Checksums are XXH3-64, 16 hex
digits. Only the .idx says which records are deleted: delete bytes in .data are those of the time when it was first
copied.
"""

from __future__ import annotations

import re

import msgspec
import xxhash

from storage.format import ENTRY_SIZE
from storage.platform import layout
from storage.segments import SegmentId, names

VERSION = 1
MARKER = "TOPICS-BACKUP"
SEGMENTS = "segments"

_MANIFEST = re.compile(r"manifest-(\d{16})\.json")
_STATE = re.compile(r"state-(\d{16})\.bin")
_SHARED = re.compile(r"(seg-\d{20}(?:\.[1-9]\d{0,19})?\.data)\.[0-9a-f]{16}")


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the data directory, from byte `begin` on, as bytes of the state file. `path` is relative to the data
    directory. No replay reads the bytes before `begin`."""

    path: str
    begin: int = 0
    offset: int
    size: int
    checksum: str


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """The .data of a sealed segment. `file` is relative to the backup directory."""

    topic_id: int
    first_seq: int
    gen: int
    file: str
    size: int
    checksum: str

    @property
    def id(self) -> SegmentId:
        return SegmentId(self.topic_id, self.first_seq, self.gen)


class Referenced(msgspec.Struct, frozen=True, kw_only=True):
    """A segment whose .data stays in the cold store of the cluster."""

    topic_id: int
    first_seq: int
    gen: int
    size: int
    records: int

    @property
    def id(self) -> SegmentId:
        return SegmentId(self.topic_id, self.first_seq, self.gen)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One backup. `heads`: the heads of all topics at its instant. `cold`: segments of the cold tier that are in
    `shared`; `referenced`: those that are not. `cell`, `cells`: the cell that it is of, and how many its set has; None
    and 1 for an engine that is not part of a set."""

    version: int
    number: int
    cluster_id: str
    taken_ms: int
    shards: int
    state_bytes: int
    pieces: list[Piece]
    shared: list[Shared]
    cold: list[tuple[int, int]]
    referenced: list[Referenced]
    heads: dict[str, int]
    cell: int | None = None
    cells: int = 1


class ManifestDamaged(ValueError):
    """The manifest is damaged."""


class ManifestUnsupported(ValueError):
    """A newer version wrote the manifest."""


def encode(manifest: Manifest) -> bytes:
    """The file."""
    line = msgspec.json.encode(manifest)
    return line + b"\n" + xxhash.xxh3_64_hexdigest(line).encode() + b"\n"


def decode(file: bytes) -> Manifest:
    """Raises ManifestDamaged, ManifestUnsupported."""
    line, _, checksum = file.partition(b"\n")
    if checksum != xxhash.xxh3_64_hexdigest(line).encode() + b"\n":
        raise ManifestDamaged("its checksum does not match")
    try:
        version = msgspec.json.decode(line, type=_Versioned).version
        if version != VERSION:
            raise ManifestUnsupported(f"its version is {version}, and this program knows {VERSION}")
        return msgspec.json.decode(line, type=Manifest)
    except msgspec.DecodeError as error:
        raise ManifestDamaged(f"it does not decode: {error}") from error


class _Versioned(msgspec.Struct, frozen=True):
    version: int


def marker_text(cluster_id: str) -> bytes:
    """Content of TOPICS-BACKUP."""
    return f"{VERSION}\n{cluster_id}\n".encode()


def manifest_name(number: int) -> str:
    return f"manifest-{number:016d}.json"


def state_name(number: int) -> str:
    return f"state-{number:016d}.bin"


def manifest_number(name: str) -> int | None:
    match = _MANIFEST.fullmatch(name)
    return int(match[1]) if match else None


def state_number(name: str) -> int | None:
    match = _STATE.fullmatch(name)
    return int(match[1]) if match else None


def is_shared(name: str) -> bool:
    """Whether this is the name of a file in a folder of `segments/`, finished or not."""
    return _SHARED.fullmatch(name.removesuffix(layout.TMP_SUFFIX)) is not None


def shared_folder(topic_id: int) -> str:
    return layout.join(SEGMENTS, f"{topic_id:016x}")


def shared_file(id: SegmentId, identity: str) -> str:
    """The path of the .data of a sealed segment."""
    return layout.join(shared_folder(id.topic_id), f"{names.data_name(id.first_seq, id.gen)}.{identity}")


def identity_of(idx: bytes) -> str:
    """Identifies the records of a sealed segment by its index, without regard to deletions."""
    normalized = bytearray(idx)
    nothing = bytes(len(idx) // ENTRY_SIZE)
    for byte in range(16, ENTRY_SIZE):  # flags, and the sum over them
        normalized[byte::ENTRY_SIZE] = nothing
    return xxhash.xxh3_64_hexdigest(bytes(normalized))


def idx_path(id: SegmentId) -> str:
    """The path of an .idx in the data directory."""
    return names.path("", id, names.IDX).lstrip("/")


def data_path(id: SegmentId) -> str:
    """The same of .data, of a segment that is not packed."""
    return names.path("", id, names.DATA).lstrip("/")
