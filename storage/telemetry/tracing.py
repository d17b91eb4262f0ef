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
        """Returns a context that is entered before copies of these records are written to dest, and left after the
        write or its failure."""
        ...


_UNTRACED: Final = nullcontext()


def moving(
    tracer: Tracer | None, what: Move, source: str, dest: str, records: Sequence[HasBody], *, router: str | None = None
) -> AbstractContextManager[None]:
    """The context for such a write; without a tracer, one that does nothing."""
    return _UNTRACED if tracer is None else tracer.moving(what, source, dest, records, router)
