"""A cell of a set: the broker's process, with unix sockets for gateways and for other cells instead of the public port.
A cell of a cluster also owns its cell in the bucket, and ends when it is not the owner any more.

Source: docs/cells.md#processes, docs/reference/bucket.md.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from broker.cells import Role
from broker.cluster import Standing, write_standing
from broker.lifecycle import ExitCode
from broker.settings import Settings
from storage import StorageError, cell_folder
from storage.backup import DirectoryDamaged
from storage.bucket import Candidate, ClockWrong, GivenUp, StoreBroken, Unanswered, open_location, parse_location

if TYPE_CHECKING:
    from broker.cells import Owner

_log = structlog.get_logger("broker.cluster")

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
#: How often the process looks whether the node has to be written something new.
_LOOK_S = 0.1


def settings_of(settings: Settings, role: Role) -> Settings:
    """The settings of a cell, of those of the set or node: its own directory and Kafka port. No setting says how many
    cells a cluster has."""
    assert role.cell is not None
    return settings.model_copy(
        update={
            "cells": role.count,
            "data_dir": Path(cell_folder(str(settings.data_dir.absolute()), role.cell)),
            "port_file": None,
            "kafka_port": role.kafka_ports[role.cell] if role.kafka_ports else None,
            "kafka_port_file": None,
        }
    )


def end_with(parent: int) -> None:
    """Kill this process when its parent ends, however that ends: nothing of a killed set outlives it, so that the next
    start finds all directories free."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)  # it has ended already


def show_as(name: str) -> None:
    """Let `ps -o comm` and `top` show that name. A process that was a spare does not have its cell in its command."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode())


def plain_settings(settings: Settings) -> Settings:
    """The settings of a cell's HTTP socket: gateways use no TLS."""
    return settings.model_copy(update={"tls_cert": None, "tls_key": None})


def listen_at(path: Path) -> socket.socket:
    """A socket for this user alone. The file that an earlier process left there is replaced."""
    with suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    return listener


def make_owner(settings: Settings, role: Role) -> Owner:
    """The future owner of the cell, which makes no request yet. Raises OpenError."""
    from storage.cells.founding import cell_name
    from storage.cells.owner import CellOwner

    assert role.cell is not None
    assert settings.cluster_url is not None
    return CellOwner(
        open_location(parse_location(settings.cluster_url)),
        cell_name(role.cell),
        str(settings.data_dir.absolute()),
        Candidate(role.node, role.nonce),
        options=msgspec.structs.replace(
            settings.storage_options(role.cell),
            put_interval_ms=settings.put_interval_ms,
            slot_lag_ms=settings.cluster_disk_lag_ms,
        ),
        on_lost=_end,
    )


async def become_owner(owner: Owner, settings: Settings, role: Role) -> bool:
    """Own the cell, however long its present owner lives. False: it cannot be served; that is logged."""
    _log.info("cell_waiting")
    telling = asyncio.create_task(_tell_node(owner, role))
    try:
        await owner.start()
    except Exception as error:  # also what the bucket holds is damaged, or not complete
        reason = error.message if isinstance(error, StorageError) else f"{type(error).__name__}: {error}"
        _log.error("cannot_start", reason=reason, data_dir=str(settings.data_dir.absolute()))
        return False
    finally:
        telling.cancel()
    _log.info("cell_taken", generation=owner.generation)
    return True


async def _tell_node(owner: Owner, role: Role) -> None:
    """Write again and again what the process does."""
    assert role.cell is not None
    written, since_ms = None, 0
    while True:
        state, progress = str(owner.state), round(owner.engine.recovery_progress, 3)
        if written is None or written[0] != state:
            since_ms = round(time.time() * 1000)
        if written != (state, progress):
            written = state, progress
            standing = Standing(nonce=role.nonce, state=state, since_ms=since_ms, progress=progress)
            with suppress(OSError):  # it is for information only
                write_standing(Path(role.run), role.cell, standing)
        await asyncio.sleep(_LOOK_S)


async def standing(owner: Owner, nonce: str, argument: object) -> dict[str, str | int]:
    """What the node wants to know of its processes."""
    return {"nonce": nonce, "generation": owner.generation}


def _end(error: Exception) -> None:
    """The process is not the owner any more, or cannot know whether it is. It may answer nothing from now on, not even
    a refusal, so there is nothing to wait for."""
    _log.error("cell_lost", error=type(error).__name__, reason=str(error))
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(exit_code(error))


def exit_code(error: Exception) -> ExitCode:
    """How a process ends that has lost its cell."""
    match error:
        case GivenUp() | Unanswered():
            return ExitCode.STORE_SILENT
        case StoreBroken() | ClockWrong():
            return ExitCode.STORE_REFUSED
        case DirectoryDamaged():
            return ExitCode.STORAGE_FAILED
        case _:
            return ExitCode.FENCED
