"""Values of the golden `.zdata` files, by their names in v1/.

The compressed block is given as bytes: other versions of zstd may compress the same data differently.
"""

from __future__ import annotations

from xxhash import xxh3_64_intdigest

from storage.format.packed_file import BLOCK_BYTES, Header, encode_table

#: A block that was compressed, and one that was not.
DATA = (b"as always, " * 6000)[:BLOCK_BYTES] + bytes(range(256))
STORED = (bytes.fromhex("28b52ffd6000ff9d000058617320616c776179732c200100f27febc50b"), DATA[BLOCK_BYTES:])
HEADER = Header(topic_id=7, first_seq=(1 << 40) + 1, gen=3, seqs=4, data_bytes=len(DATA))
DELETE_BYTES = bytes((0, 0xD5, 0, 0xD5))


def packed_files() -> dict[str, bytes]:
    """Every golden packed file: its name in v1/ and its bytes."""
    rows = [(len(each), xxh3_64_intdigest(each)) for each in STORED]
    return {"packed.zdata.bin": HEADER.encode() + DELETE_BYTES + b"".join(STORED) + encode_table(HEADER, rows)}
