"""The commands of the `topics` program, one a module; `client.cli` puts them together."""

from client.commands.append import append
from client.commands.backup import backup, restore
from client.commands.claim import claim
from client.commands.consumers import consumers
from client.commands.delete import delete
from client.commands.listing import list_topics
from client.commands.put import put
from client.commands.queues import leases, pause, purge, redrive, resume
from client.commands.read import read
from client.commands.routers import routers
from client.commands.serve import serve
from client.commands.settle import ack, extend, nack
from client.commands.state import state
from client.commands.tail import tail
from client.commands.terminal import EXIT_CODES_HELP
from client.commands.watch import watch
from client.commands.work import work

__all__ = [
    "EXIT_CODES_HELP",
    "ack",
    "append",
    "backup",
    "claim",
    "consumers",
    "delete",
    "extend",
    "leases",
    "list_topics",
    "nack",
    "pause",
    "purge",
    "put",
    "read",
    "redrive",
    "restore",
    "resume",
    "routers",
    "serve",
    "state",
    "tail",
    "watch",
    "work",
]
