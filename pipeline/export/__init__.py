"""The export job: files in date folders, and a chain of manifests that lists the valid ones."""

from pipeline.export import publication
from pipeline.export.arrow_engine import ArrowEngine
from pipeline.export.chains import chain_of, exported_topics
from pipeline.export.display import Display, grid, show, summary
from pipeline.export.exporter import Exporter, Limits, Outcome
from pipeline.export.maintenance import Compacted, check_retention, collect, compact, status, vacuum, widen
from pipeline.export.part_settings import FORMATS, PartSettings
from pipeline.export.schedule import Schedule
from pipeline.export.store import Store, open_store, path_of, prove
from pipeline.export.task import Engine, Job
from pipeline.export.verification import Verification
from pipeline.export.versions import versions, whereabouts_of

__all__ = [
    "FORMATS",
    "ArrowEngine",
    "Compacted",
    "Display",
    "Engine",
    "Exporter",
    "Job",
    "Limits",
    "Outcome",
    "PartSettings",
    "Schedule",
    "Store",
    "Verification",
    "chain_of",
    "check_retention",
    "collect",
    "compact",
    "exported_topics",
    "grid",
    "open_store",
    "path_of",
    "prove",
    "publication",
    "show",
    "status",
    "summary",
    "vacuum",
    "versions",
    "whereabouts_of",
    "widen",
]
