"""Runs the instructions of the Containerfile in plain folders, without a container engine.

A stage is a copy of a bare Debian root, in which RUN is a shell under chroot. The result can be entered as the chart
runs it: another user, a read-only root file system, volumes where they are mounted.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "Containerfile"
#: Installing takes minutes on a slow network.
PATIENCE_S = 900
#: The authorities that a step trusts, in a place of their own: installing ca-certificates overwrites the usual one.
AUTHORITIES = "/authorities.pem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    word: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    name: str
    base: str
    steps: list[Instruction] = field(default_factory=list[Instruction])

    def all(self, word: str) -> list[str]:
        return [step.text for step in self.steps if step.word == word]

    def only(self, word: str) -> str:
        [text] = self.all(word)
        return text

    def environment(self) -> dict[str, str]:
        return dict(part.split("=", 1) for text in self.all("ENV") for part in shlex.split(text))

    def copies(self) -> list[tuple[str, list[str], str]]:
        """(stage or '', sources, destination) of each COPY."""
        found: list[tuple[str, list[str], str]] = []
        for text in self.all("COPY"):
            source = re.match(r"--from=(\S+) ", text)
            *sources, destination = text.removeprefix(source[0] if source else "").split()
            found.append((source[1] if source else "", sources, destination))
        return found


def stages(text: str) -> dict[str, Stage]:
    """The stages by name, in order."""
    lines = "\n".join(line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    found: dict[str, Stage] = {}
    for line in re.sub(r"\\\n\s*", "", lines).splitlines():
        word, rest = line.split(None, 1)
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            found[name] = Stage(name=name, base=base)
        elif found:
            [*found.values()][-1].steps.append(Instruction(word=word, text=rest))
    return found


def suite() -> str:
    """The release of Debian that the image is made from."""
    found = re.search(r"^ARG BASE=\S*debian:(\w+)-slim$", FILE.read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def refusal() -> str | None:
    """Why no root can be made here."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "chroot needs root on Linux"
    missing = [program for program in ("debootstrap", "unshare", "setpriv") if shutil.which(program) is None]
    return f"no {', '.join(missing)}" if missing else None


class Image:
    """Builds stages in `folder`, each once. `base`: a bare root, which is not changed."""

    def __init__(self, base: Path, folder: Path) -> None:
        self._base = base
        self._folder = folder
        self.stages = stages(FILE.read_text())
        #: Working directory and variables of the built stages. A stage begins with those of its base.
        self._ended: dict[str, tuple[str, dict[str, str]]] = {}

    def build(self, target: str) -> Path:
        """The root of this stage. Stages that it does not need are not built."""
        for name in [each for each in self.stages if each in self.needed(target)]:
            if name not in self._ended:
                self._build(self.stages[name])
        return self._folder / target

    def needed(self, name: str) -> set[str]:
        """A stage, its bases, and the stages that it copies from."""
        stage = self.stages[name]
        before = {stage.base, *(source for source, _, _ in stage.copies())} & self.stages.keys()
        return {name}.union(*map(self.needed, before))

    def _build(self, stage: Stage) -> None:
        root = self._folder / stage.name
        begin = self._folder / stage.base if stage.base in self.stages else self._base
        subprocess.run(["cp", "-a", "--reflink=auto", str(begin), str(root)], check=True)
        lent = _lend(root)
        work, before = self._ended.get(stage.base, ("/", {}))
        environment = {**before}
        for step in stage.steps:
            match step.word:
                case "RUN":
                    _run(root, work, environment, step.text)
                case "WORKDIR":
                    work = step.text
                    (root / work[1:]).mkdir(parents=True, exist_ok=True)
                case "ENV":
                    environment |= dict(part.split("=", 1) for part in shlex.split(step.text))
                case "COPY":
                    pass
                case _:
                    continue
            if step.word == "COPY":
                self._copy(root, work, step.text)
        for path in lent:
            path.unlink()
        self._ended[stage.name] = work, environment

    def _copy(self, root: Path, work: str, text: str) -> None:
        [(stage, sources, destination)] = Stage(name="", base="", steps=[Instruction(word="COPY", text=text)]).copies()
        goal = root / os.path.join(work, destination)[1:]
        for source in sources:
            origin = (self._folder / stage / source[1:]) if stage else ROOT / source
            if origin.is_dir():
                ignored = None if stage else shutil.ignore_patterns("__pycache__")
                shutil.copytree(origin, goal, symlinks=True, dirs_exist_ok=True, ignore=ignored)
            else:
                target = goal / origin.name if destination.endswith("/") else goal
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(origin, target)


def _lend(root: Path) -> list[Path]:
    """What a step needs from this machine to reach package sources: names, pip's configuration, authorities."""
    authorities = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile or ""
    lent: list[Path] = []
    for path, name in (("/etc/resolv.conf",) * 2, ("/etc/pip.conf",) * 2, (authorities, AUTHORITIES)):
        there = root / name[1:]
        if os.path.isfile(path) and not there.exists():
            shutil.copyfile(path, there)
            lent.append(there)
    return lent


def _run(root: Path, work: str, environment: Mapping[str, str], command: str) -> None:
    path = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    named = {name: value for name, value in os.environ.items() if name in ("PIP_INDEX_URL", "PIP_DEFAULT_TIMEOUT")}
    trusted = dict.fromkeys(("SSL_CERT_FILE", "PIP_CERT"), AUTHORITIES) if (root / AUTHORITIES[1:]).exists() else {}
    inside = shlex.join([str(root), "/bin/sh", "-c", f"cd {shlex.quote(work)} && {command}"])
    # As in a real build there is /proc, which Java needs. It is gone after the step.
    script = f"mount -t proc none {shlex.quote(str(root))}/proc\nexec {shutil.which('chroot')} {inside}"
    done = subprocess.run(
        ["unshare", "--mount", "--propagation=private", "/bin/sh", "-ec", script],
        env={**named, **trusted, **path, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}"


def confined(root: Path, work: str, mounts: Mapping[str, Path], user: int, command: Sequence[str]) -> list[str]:
    """Run the command as a container would: as that user, with `root` read-only except for `mounts` (path inside →
    folder).

    It runs in a mount namespace of its own, which is gone with the process. It has no capabilities and can gain none.
    """
    script = [f"mount --bind {root} {root}", f"mount -o remount,bind,ro {root}"]
    script += [f"mount --bind {folder} {root}{path}" for path, folder in mounts.items()]
    script += [f"mount -t proc none {root}/proc", f"mount --bind /dev {root}/dev"]
    rights = f"--reuid={user} --regid={user} --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs"
    inner = shlex.join(["sh", "-c", f"cd {work} && exec {shlex.join(command)}"])
    # Not looked up here: the variables are those of the container.
    script.append(f"exec {shutil.which('chroot')} {root} setpriv {rights} {inner}")
    return ["unshare", "--mount", "--propagation=private", "sh", "-ec", "\n".join(script)]


def json_command(text: str) -> list[str]:
    """The exec form of CMD."""
    return json.loads(text)
