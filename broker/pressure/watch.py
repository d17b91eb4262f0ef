"""Measures the pressure and applies the governor's decisions. Runs on the event loop.

Source: docs/guides/operate.md#pressure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from broker.pressure.governor import Governor, Limits, Signals, Step
from storage import RequestError

if TYPE_CHECKING:
    from storage import Engine


class UnderPressure(RequestError):
    """The broker is overloaded with writes; nothing was stored. Retry later."""

    code = "throttled"

    def __init__(self, retry_after_ms: int) -> None:
        super().__init__(retry_after_ms=retry_after_ms)


_log = structlog.get_logger("broker")

SAMPLE_S: Final = 0.1
#: The queue's share at which writes are refused. Clients may fill about 0.9 of it; above that, they wait for room.
QUEUE_FULL: Final = 0.8
#: If answers use all their memory, deferrable work waits, but writes are not refused: otherwise readers could stop
#: writers by not reading.
MEMORY_FULL: Final = 1.25
#: By step: how long records are collected before they are sent to watchers; the factor for the group commit window.
COALESCE_S: Final = (0.0, 0.01, 0.02, 0.05, 0.05)
WINDOW_FACTORS: Final = (1, 1, 2, 4, 4)
#: By step: deliveries to watchers get 1/n of their usual share of the loop.
SHARE: Final = (1, 1, 1, 4, 4)


class Pressure:
    """Applies the step to the engine. Live reading uses `coalesce_s` and `share`."""

    def __init__(
        self, engine: Engine, *, loop_lag_ms: int, commit_ms: int, memory: Callable[[], float] = lambda: 0.0
    ) -> None:
        """`loop_lag_ms`, `commit_ms`: the loop lag, and the age of an uncommitted write, at which writes are refused;
        0 = ignored. `memory` returns the used share of the memory for answers."""
        self._engine = engine
        self._memory = memory
        self.governor = Governor(Limits(loop_lag_ms, QUEUE_FULL, commit_ms, MEMORY_FULL))
        self.loop_lag_ms = 0.0
        self.refused_total = 0
        self.coalesce_s = COALESCE_S[Step.NORMAL]
        self.share = SHARE[Step.NORMAL]
        #: Whether writes are refused now.
        self.refusing = False
        self._task: asyncio.Task[None] | None = None

    def check(self) -> None:
        """Raises UnderPressure if writes are refused."""
        if self.refusing:
            self.refused_total += 1
            raise UnderPressure(self.governor.retry_after_ms)

    # -- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start measuring."""
        self._task = asyncio.create_task(self._run(), name="pressure")

    def stop(self) -> None:
        """Stop measuring, and undo all measures."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self.governor = Governor(self.governor.limits)
        self._shed_load(Step.NORMAL)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + SAMPLE_S
            await asyncio.sleep(SAMPLE_S)
            self.loop_lag_ms = max(0.0, (loop.time() - due) * 1000)
            self.sample(loop.time() * 1000)

    def sample(self, now_ms: float) -> None:
        """Take a sample of all signals. Applies the step if it has changed."""
        before = self.governor.step
        step = self.governor.take(Signals(self.loop_lag_ms, *self._log(), min(1.0, self._memory())), now_ms)
        if step is not before:
            _log_step(step, before, round(self.governor.pressure, 2))
            self._shed_load(step)

    def _log(self) -> tuple[float, float]:
        """The fill of the fullest queue of a shard, 0 to 1, and the age of the oldest uncommitted write, ms."""
        fill = age = 0.0
        for shard in self._engine.shards:
            if shard.log.failed is None:
                fill = max(fill, shard.fill)
                age = max(age, shard.oldest_ms())
        return fill, age

    # -- steps -------------------------------------------------------------------------------------------------------

    def _shed_load(self, step: Step) -> None:
        self.refusing = step is Step.REFUSE
        self.coalesce_s, self.share = COALESCE_S[step], SHARE[step]
        self._engine.load_shedding.deferring = step >= Step.DEFER
        for shard in self._engine.shards:
            shard.widen_window(WINDOW_FACTORS[step])


def _log_step(step: Step, before: Step, pressure: float) -> None:
    if Step.REFUSE in (step, before):
        _log.warning("pressure", step=step.name.lower(), was=before.name.lower(), pressure=pressure)
    else:
        _log.info("pressure", step=step.name.lower(), was=before.name.lower(), pressure=pressure)
