"""The refusal of a request for which there is no memory."""

from __future__ import annotations

from storage import RequestError


class Overloaded(RequestError):
    """Other requests hold all the memory that answers or bodies may take; nothing was done. Retry after a moment."""

    code = "overloaded"

    def __init__(self, *, limit: str, max: int) -> None:
        super().__init__(limit=limit, max=max)
