"""Names of files and folders of an export. Pure.

Source: docs/guides/spark.md#exporting.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from pipeline.errors import BadOption
from pipeline.export.part_settings import DELTA, ICEBERG, JSON, PARQUET
from pipeline.export.store import META

_SAFE = re.compile(rb"[A-Za-z0-9.-]")
_MANIFEST = re.compile(r"(\d{20})\.json")
_PLAN = re.compile(r"(\d{20})\.plan\.json")
_PART = re.compile(r"part-(\d+)-(\d{20})-(\d{20})-(\d+)-([0-9a-f]{8})\.[a-z.]+")
_TABLE_MANIFEST = re.compile(r"\d{20}-([0-9a-f]{32})\.json")
SUFFIXES = {PARQUET: "parquet", DELTA: "parquet", ICEBERG: "parquet", JSON: "json.gz"}
#: The folder of records without a tag, as readers of such folders expect it.
NO_TAG = "__HIVE_DEFAULT_PARTITION__"
#: The most bytes of a tag in the name of a folder; file systems allow 255.
TAG_BYTES = 240


def component(name: str) -> str:
    """A topic's name as a path component: all but [A-Za-z0-9.-] percent-encoded, and a leading . or _ too."""
    out = b"".join(
        bytes((byte,)) if _SAFE.match(bytes((byte,))) and not (index == 0 and byte == ord(".")) else b"%%%02X" % byte
        for index, byte in enumerate(name.encode())
    )
    return out.decode()


def table_component(name: str) -> str:
    """A topic's name as the folder of a table: `:` becomes _3A, and a leading _ becomes -5F.

    It has no % and no =. Readers of tables decode a path once too often, and polars takes a folder with = for a
    partition. No topic's name begins with -, so no two topics have the same folder.
    """
    hidden = name.startswith("_")
    plain = re.sub(r"_(?=3A|5F)", "_5F", name[hidden:]).replace(":", "_3A")
    return f"-5F{plain}" if hidden else plain


def earlier_table_component(name: str) -> str:
    """The folder of a table that an earlier version has made."""
    return component(name).replace("%", "=")


def table_name(name: str) -> str:
    """A topic's name as the name of a table in a catalog: all but [A-Za-z0-9_] becomes _XX, its bytes in hex."""
    plain = re.sub(r"_(?=[0-9A-F]{2})", "_5F", name)
    return re.sub(r"[^A-Za-z0-9_]", lambda found: "".join(f"_{byte:02X}" for byte in found[0].encode()), plain)


def tag_folder(tag: str) -> str:
    """`tag=…`; "" means no tag. Raises BadOption if the name is too long for a folder."""
    name = component(tag) if tag else NO_TAG
    if len(name) > TAG_BYTES:
        raise BadOption(
            f"The tag {tag[:40]!r}… is too long for the name of a folder: leave `tag` out of --partition-by, or export "
            "to a table (--format delta)."
        )
    return f"tag={name}"


def table_tag_folder(tag: str) -> str:
    """`/tag=…` for a file of a Delta table, or nothing if the name is too long for a folder: the log has the tag."""
    try:
        return f"/{tag_folder(tag)}"
    except BadOption:
        return ""


def partition_folder(ts_ms: int, hourly: bool) -> str:
    """`date=YYYY-MM-DD`, and `/hour=HH` if `hourly`; UTC."""
    moment = datetime.fromtimestamp(ts_ms / 1000, UTC)
    return moment.strftime("date=%Y-%m-%d/hour=%H" if hourly else "date=%Y-%m-%d")


def part(home: str, folder: str, partition: int, start: int, end: int, epoch: int, attempt: str, kind: str) -> str:
    """The key of a file with records start <= seq < end, in a folder of the topic's `home`. `attempt` is random, so
    that keys differ."""
    return f"{home}/{folder}/part-{partition}-{start:020d}-{end:020d}-{epoch}-{attempt}.{SUFFIXES[kind]}"


def staging_folder(topic: str) -> str:
    """The folder of files that are not visible yet."""
    return f"{chain_folder(topic)}/_staged"


def staged(topic: str, key: str) -> str:
    """The key of a file that is not visible yet: no glob for its suffix finds it."""
    return f"{staging_folder(topic)}/{key.split('/', 1)[1]}.tmp"


def is_part(key: str) -> bool:
    """Whether a key names a file of records."""
    return _PART.fullmatch(key.rsplit("/", 1)[-1]) is not None


def epoch_of(key: str) -> int:
    """The epoch of the topic in the key of a file."""
    match = _PART.fullmatch(key.rsplit("/", 1)[-1])
    return int(match[4]) if match else 0


def chain_folder(topic: str) -> str:
    """Folder of a topic's manifests and plans."""
    return f"{META}/{component(topic)}"


def manifest(topic: str, number: int) -> str:
    return f"{chain_folder(topic)}/{number:020d}.json"


def plan(topic: str, number: int) -> str:
    return f"{chain_folder(topic)}/{number:020d}.plan.json"


def table_manifest(topic: str, number: int, run: str) -> str:
    """The key of a manifest that counts if the table names its run."""
    return f"{chain_folder(topic)}/{number:020d}-{run}.json"


def run_of_table_manifest(key: str) -> str | None:
    """The run in such a key; None for other keys."""
    match = _TABLE_MANIFEST.fullmatch(key.rsplit("/", 1)[-1])
    return match[1] if match else None


def number_of_table_manifest(key: str) -> int | None:
    """The number in such a key; None for other keys."""
    return int(key.rsplit("/", 1)[-1].split("-")[0]) if run_of_table_manifest(key) is not None else None


def mark(topic: str, kind: str) -> str:
    """The key of the object that marks an export as a table of that format."""
    return f"{chain_folder(topic)}/{kind}.json"


def number_of_manifest(key: str) -> int | None:
    """The number in a manifest's key; None for other keys."""
    match = _MANIFEST.fullmatch(key.rsplit("/", 1)[-1])
    return int(match[1]) if match else None


def number_of_plan(key: str) -> int | None:
    """The number in a plan's key; None for other keys."""
    match = _PLAN.fullmatch(key.rsplit("/", 1)[-1])
    return int(match[1]) if match else None
