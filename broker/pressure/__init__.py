"""What the broker does when more is asked of it than it can do: latency suffers in steps, correctness never.

signals    what is measured: loop lag, queue of the log, age of the oldest write that is not committed
governor   which step that calls for; pure
watch      measures and applies steps
watch      measures, decides and does, ten times a second
"""

from broker.pressure.refusal import UnderPressure
from broker.pressure.watch import Pressure

__all__ = [
    "Pressure",
    "UnderPressure",
]
