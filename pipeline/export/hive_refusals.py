"""What Hive's metastore means when it refuses a change of an Iceberg table. Pure.

Source: docs/guides/spark.md#hive.
"""

from __future__ import annotations

import re

#: The type of the column `timestamp`, which Hive 2 does not know.
_HIVE3_TYPE = "timestamp with local time zone"
_NO_FILE_SYSTEM = re.compile(r'No FileSystem for scheme[: "]+(\w+)')


def reason(refusal: Exception | None) -> str | None:
    """What an operator should know. None: nothing of Hive."""
    from pyiceberg.exceptions import WaitingForLockException

    if refusal is None:
        return None
    if isinstance(refusal.__cause__, WaitingForLockException):
        return (
            "it is locked in Hive's metastore, by a writer that is at work or was killed. The metastore removes the "
            "lock of a killed one only if it is set to: docs/guides/spark.md#hive"
        )
    text = str(refusal)
    if _HIVE3_TYPE in text:
        return (
            "the metastore is of Hive 2. Set PYICEBERG_CATALOG__<NAME>__HIVE__HIVE2_COMPATIBLE=true, and drop the "
            "table, which has no records yet: docs/guides/spark.md#hive"
        )
    if found := _NO_FILE_SYSTEM.search(text):
        return (
            f"the metastore has no file system for {found[1]}://, and makes the folder of a table itself: "
            "docs/guides/spark.md#hive"
        )
    return None
