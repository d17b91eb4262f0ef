"""Sets the wall clock of a Python process off: TOPICS_LOAD_CLOCK_S seconds are added to what `time` says.

Every process that has this folder in PYTHONPATH imports this when it starts. Monotonic clocks are as they were.
"""

from __future__ import annotations

import os
import time

_OFF_NS = round(float(os.environ.get("TOPICS_LOAD_CLOCK_S", "0") or 0) * 1e9)
if _OFF_NS:
    _time, _time_ns = time.time, time.time_ns
    time.time = lambda: _time() + _OFF_NS / 1e9
    time.time_ns = lambda: _time_ns() + _OFF_NS
