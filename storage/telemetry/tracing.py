"""Reports the records that an engine moves by itself to a tracer. By default there is no tracer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Literal, Protocol

Move = Literal["forward", "dead_letter", "redrive"]


class HasBody(Protocol):
    """A record, or the copy of one: `body` as it is stored."""

    @property
    def body(self) -> bytes: ...


class Tracer(Protocol):
    """Called on the event loop; must not raise."""

    def moving(
        self, what: Move, source: str, dest: str, records: Sequence[HasBody], router: str | None
    ) -> AbstractContextManager[None]:
        """Entered when copies of these records are about to be written to dest, left when they are, or are not."""
        ...


_UNTRACED: Final = nullcontext()


def moving(
    tracer: Tracer | None, what: Move, source: str, dest: str, records: Sequence[HasBody], *, router: str | None = None
) -> AbstractContextManager[None]:
    """What to have around such a write."""
    return _UNTRACED if tracer is None else tracer.moving(what, source, dest, records, router)
