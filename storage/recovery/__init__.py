"""From the files of a data directory to the engine's state, and the frames to write before requests are served."""

from storage.recovery.recovery import Recovered, Report, load_snapshots, recover
from storage.recovery.resharding import clean_up, is_due, lay_out_anew, recorded_shards, reshard
from storage.recovery.start import announce_losses, end_leases_with_this_process, return_reservations

__all__ = [
    "Recovered",
    "Report",
    "announce_losses",
    "clean_up",
    "end_leases_with_this_process",
    "is_due",
    "lay_out_anew",
    "load_snapshots",
    "recorded_shards",
    "recover",
    "reshard",
    "return_reservations",
]
