"""The Python processes in which Spark runs tasks."""

from __future__ import annotations

import gc
import sys
from functools import cache


@cache
def freeze_imports() -> None:
    """Take what is in memory now out of all later collections of garbage: a task calls this when it begins.

    A worker process of PySpark collects after each task, and visits each object that an import has made, for longer
    than a small task reads. Once is enough, and in other processes nothing happens.
    """
    if is_spark_worker():
        gc.collect()
        gc.freeze()


def is_spark_worker() -> bool:
    """Whether PySpark has forked this process for its tasks."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return main is not None and main.name == "pyspark.daemon"
