"""The commands of the `topics` program, one a module; `topics_client.cli` puts them together."""

from topics_client.commands.append import append
from topics_client.commands.backup import backup, restore
from topics_client.commands.claim import claim
from topics_client.commands.consumers import consumers
from topics_client.commands.delete import delete
from topics_client.commands.listing import list_topics
from topics_client.commands.put import put
from topics_client.commands.queues import leases, pause, purge, redrive, resume
from topics_client.commands.read import read
from topics_client.commands.routers import routers
from topics_client.commands.serve import serve
from topics_client.commands.settle import ack, extend, nack
from topics_client.commands.state import state
from topics_client.commands.tail import tail
from topics_client.commands.terminal import EXIT_CODES_HELP
from topics_client.commands.watch import watch
from topics_client.commands.work import work

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
