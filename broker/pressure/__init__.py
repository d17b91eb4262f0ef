"""Load shedding: under pressure, the broker delays work in steps, and finally refuses writes. It stays correct.

governor   decides the step from the measured signals; pure
watch      measures the signals ten times a second, applies the step, and refuses writes
"""

from broker.pressure.watch import Pressure, UnderPressure

__all__ = [
    "Pressure",
    "UnderPressure",
]
