"""Watch sessions: their lifetime and their number."""

from __future__ import annotations

import re

import pytest

from broker.auth.access import Forbidden
from broker.live.cursor import Position
from broker.live.session import TTL_MS, Session, SessionNotFound, Sessions
from broker.live.watch_options import Options, StreamOptions
from storage.errors import LimitReached

WISH = StreamOptions(options=Options(limit=1, max_batch_bytes=1), heartbeat_ms=1000)


def make(sessions: Sessions, now_ms: float = 0, owner: str | None = None) -> Session:
    return sessions.make(WISH, {"t": Position(1, 0)}, owner, now_ms)


def test_an_id_cannot_be_guessed() -> None:
    sessions = Sessions(0)
    found = {make(sessions).wid for _ in range(100)}
    assert len(found) == 100
    assert all(re.fullmatch(r"wid_[A-Za-z0-9_-]{22}", wid) for wid in found)


def test_a_session_without_a_stream_expires_after_its_ttl() -> None:
    sessions = Sessions(0)
    wid = make(sessions).wid
    assert sessions.find(wid, None, TTL_MS - 1).wid == wid
    with pytest.raises(SessionNotFound):
        sessions.find(wid, None, TTL_MS)
    assert len(sessions) == 0


def test_a_session_expires_a_ttl_after_its_last_stream_ended() -> None:
    sessions = Sessions(0)
    session = make(sessions)
    sessions.opened(session)
    sessions.opened(session)
    assert sessions.find(session.wid, None, 10 * TTL_MS) is session
    sessions.closed(session, 10 * TTL_MS)
    assert sessions.find(session.wid, None, 20 * TTL_MS) is session
    sessions.closed(session, 20 * TTL_MS)
    assert sessions.find(session.wid, None, 21 * TTL_MS - 1) is session
    with pytest.raises(SessionNotFound):
        sessions.find(session.wid, None, 21 * TTL_MS)


def test_expired_sessions_make_room() -> None:
    sessions = Sessions(2)
    make(sessions, 0)
    kept = make(sessions, 1000)
    with pytest.raises(LimitReached) as refusal:
        make(sessions, TTL_MS - 1)
    assert refusal.value.detail == {"limit": "max_watch_sessions", "max": 2}
    assert sessions.refused_total == 1
    make(sessions, TTL_MS)
    assert sessions.find(kept.wid, None, TTL_MS) is kept


def test_session_of_another_key_is_forbidden() -> None:
    sessions = Sessions(0)
    session = make(sessions, owner="a")
    assert sessions.find(session.wid, "a", 0) is session
    for other in (None, "b"):
        with pytest.raises(Forbidden):
            sessions.find(session.wid, other, 0)
