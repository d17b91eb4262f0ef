"""Environment variables that look like settings and are none. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Final

PREFIX: Final = "TOPICS_"
#: Variables of the client and the programs that it starts, of the kernel, and of the tests.
_OTHERS: Final = re.compile(r"(KERNEL|URL|TOKEN|NODE|BACKUP_DIR|JOB_\w+|TEST_\w+)")
#: Variables that Kubernetes sets in every container for a service whose name begins with topics.
_SERVICE_LINK: Final = re.compile(r"(\w+_)?(SERVICE_(HOST|PORT\w*)|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")


def is_injected(variable: str, value: str | None) -> bool:
    """Whether Kubernetes made this variable: TOPICS_…PORT=tcp://10.0.0.1:4000."""
    name = variable.upper()
    return name.startswith(PREFIX) and name.endswith("PORT") and value is not None and value.startswith("tcp://")


def ignored(environment: Mapping[str, str], settings: Collection[str]) -> list[str]:
    """Sentences about variables that look like settings and are not used; `settings`: the names of all settings."""
    sentences: list[str] = []
    for variable, value in environment.items():
        name = variable.upper().removeprefix(PREFIX)
        if is_injected(variable, value):
            sentences.append(
                f"{variable} is ignored: {value!r} was put there by Kubernetes for a service of that name."
            )
        elif variable.upper() == name or name in settings or _OTHERS.fullmatch(name) or _SERVICE_LINK.fullmatch(name):
            continue
        else:
            close = get_close_matches(name, settings, n=1, cutoff=0.7)
            hint = f"; did you mean {PREFIX}{close[0]}?" if close else "."
            sentences.append(f"{variable} is ignored: there is no such setting{hint}")
    return sentences
