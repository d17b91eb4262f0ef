"""Values of the golden `.tag` files, by their names in v1/."""

from __future__ import annotations

from dataclasses import dataclass, field

from storage.format.tag_file import encode


@dataclass(frozen=True, kw_only=True)
class GoldenTags:
    """The arguments of one tag file."""

    first_seq: int = 1
    gen: int = 0
    data_bytes: int
    pairs: list[tuple[bytes, int]] = field(default_factory=list[tuple[bytes, int]])

    def encoded(self) -> bytes:
        return encode(self.first_seq, self.gen, self.data_bytes, self.pairs)


TAG_FILES: dict[str, GoldenTags] = {
    "tag-file-of-no-tags.bin": GoldenTags(data_bytes=58),
    "tag-file-one-tag.bin": GoldenTags(data_bytes=64, pairs=[(b"orders", 1)]),
    # Tags that are prefixes of others, runs of several entries, a rewritten segment in the middle of a log.
    "tag-file-many.bin": GoldenTags(
        first_seq=(1 << 40) + 1,
        gen=12,
        data_bytes=5_000_000_000,
        pairs=[
            ("käse".encode(), (1 << 40) + 3),
            (b"order", (1 << 40) + 1),
            (b"orders", (1 << 40) + 2),
            (b"orders", (1 << 40) + 300),
            (b"orders", (1 << 40) + 10_000),
            (b"orders:eu", (1 << 40) + 9),
            (b"~", (1 << 40) + 70_000),
        ],
    ),
}


def tag_files() -> dict[str, bytes]:
    """Every golden tag file: its name in v1/ and its bytes."""
    return {name: each.encoded() for name, each in TAG_FILES.items()}
