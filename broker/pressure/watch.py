"""Measures the pressure, and does what the governor says. Belongs to the event loop. Source: api.md §3 (pressure)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from broker.pressure.governor import Governor, Limits, Signals, Step
from broker.pressure.refusal import UnderPressure

if TYPE_CHECKING:
    from storage.engine import Engine

_log = structlog.get_logger("broker")

SAMPLE_S: Final = 0.1
#: The queue is a tenth wider than what clients may fill: at this share they would have to wait for room.
QUEUE_FULL: Final = 0.8
#: Answers that hold all they may mean work that can wait does: not that writes are refused, which readers could bring
#: about by not reading.
MEMORY_FULL: Final = 1.25
#: By step: how long news are gathered before they are sent; how much more company a group commit waits for.
COALESCE_S: Final = (0.0, 0.01, 0.02, 0.05, 0.05)
STRETCH: Final = (1, 1, 2, 4, 4)
#: Which part of what it usually takes of the loop delivery to watchers takes.
SHARE: Final = (1, 1, 1, 4, 4)


class Pressure:
    """What a step does to the engine is done here; `coalesce_s` and `share` are for live reading to heed."""

    def __init__(
        self, engine: Engine, *, loop_lag_ms: int, commit_ms: int, memory: Callable[[], float] = lambda: 0.0
    ) -> None:
        """Where loop lag and the age of an uncommitted write mean refusing, in ms; 0 = they are not looked at.
        `memory` says which part answers hold of what they may."""
        self._engine = engine
        self._memory = memory
        self.governor = Governor(Limits(loop_lag_ms, QUEUE_FULL, commit_ms, MEMORY_FULL))
        self.loop_lag_ms = 0.0
        self.refused_total = 0
        self.coalesce_s = COALESCE_S[Step.CALM]
        self.share = SHARE[Step.CALM]
        self._task: asyncio.Task[None] | None = None

    @property
    def refusing(self) -> bool:
        """Whether a write that can be refused would be."""
        return self.governor.step is Step.REFUSE

    def check(self) -> None:
        """Raises UnderPressure when it is time to refuse writes."""
        if self.governor.step is Step.REFUSE:
            self.refused_total += 1
            raise UnderPressure(self.governor.retry_after_ms)

    # -- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """From now on it is measured."""
        self._task = asyncio.create_task(self._run(), name="pressure")

    def stop(self) -> None:
        """Everything is as without pressure again."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self.governor = Governor(self.governor.limits)
        self._relieve(Step.CALM)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + SAMPLE_S
            await asyncio.sleep(SAMPLE_S)
            self.loop_lag_ms = max(0.0, (loop.time() - due) * 1000)
            self.sample(loop.time() * 1000)

    def sample(self, now_ms: float) -> None:
        """Look at everything once; act when that calls for another step than before."""
        before = self.governor.step
        step = self.governor.take(Signals(self.loop_lag_ms, *self._log(), min(1.0, self._memory())), now_ms)
        if step is not before:
            _say(step, before, round(self.governor.pressure, 2))
            self._relieve(step)

    def _log(self) -> tuple[float, float]:
        """How full the fullest queue of a shard is, 0 to 1, and how old the oldest write there, in ms."""
        fill = age = 0.0
        for shard in self._engine.shards:
            if shard.log.failed is None:
                fill = max(fill, shard.fill)
                age = max(age, shard.oldest_ms())
        return fill, age

    # -- steps -------------------------------------------------------------------------------------------------------

    def _relieve(self, step: Step) -> None:
        self.coalesce_s, self.share = COALESCE_S[step], SHARE[step]
        self._engine.relief.deferring = step >= Step.DEFER
        for shard in self._engine.shards:
            shard.stretch_window(STRETCH[step])


def _say(step: Step, before: Step, pressure: float) -> None:
    if Step.REFUSE in (step, before):
        _log.warning("pressure", step=step.name.lower(), was=before.name.lower(), pressure=pressure)
    else:
        _log.info("pressure", step=step.name.lower(), was=before.name.lower(), pressure=pressure)
