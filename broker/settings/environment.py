"""Finds environment variables that look like settings and are not. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Final

PREFIX: Final = "TOPICS_"
#: Variables of the client, of the programs that it starts, of the kernel, and of the tests.
_OTHERS: Final = re.compile(r"(KERNEL|URL|TOKEN|NODE|BACKUP_DIR|JOB_\w+|TEST_\w+)")
#: Variables that Kubernetes sets in all containers for a service whose name begins with "topics".
_SERVICE_LINK: Final = re.compile(r"(\w+_)?(SERVICE_(HOST|PORT\w*)|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")


def is_injected(variable: str, value: str | None) -> bool:
    """Whether Kubernetes has set this variable: TOPICS_…PORT=tcp://10.0.0.1:4000."""
    name = variable.upper()
    return name.startswith(PREFIX) and name.endswith("PORT") and value is not None and value.startswith("tcp://")


def ignored(environment: Mapping[str, str], settings: Collection[str]) -> list[str]:
    """Warnings about variables that look like settings and are ignored. `settings`: the names of all settings."""
    warnings: list[str] = []
    for variable, value in environment.items():
        name = variable.upper().removeprefix(PREFIX)
        if is_injected(variable, value):
            warnings.append(f"{variable} is ignored: Kubernetes has set it to {value!r} for a service of that name.")
        elif variable.upper() == name or name in settings or _OTHERS.fullmatch(name) or _SERVICE_LINK.fullmatch(name):
            continue
        else:
            close = get_close_matches(name, settings, n=1, cutoff=0.7)
            hint = f"; did you mean {PREFIX}{close[0]}?" if close else "."
            warnings.append(f"{variable} is ignored: no setting has this name{hint}")
    return warnings
