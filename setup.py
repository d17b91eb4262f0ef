"""What pyproject.toml cannot say: the compiled kernel, and where the wheel puts the packages.

The kernel is an optional part. Where it cannot be built, kernel/plain.py serves.

The wheel holds the packages below `topics_broker` (docs/adr/0097-one-installed-package.md). Their imports are rewritten
when it is built. An editable install leaves all as it is.
"""

from __future__ import annotations

import ast
import re
import shutil
import sysconfig
from glob import glob
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

# One build serves every later Python, but for those without the interpreter's lock, which have no stable ABI yet.
ABI = "" if sysconfig.get_config_var("Py_GIL_DISABLED") else "cp311"

ROOT = "topics_broker"
PACKAGES = ("broker", "kernel", "pipeline", "schemas", "storage")
# Commands that messages tell a person to type.
COMMAND = re.compile(rf"python -m (?=(?:{'|'.join(PACKAGES)})\b)")


def moved(source: str, name: str) -> str:
    """The source of a module with its imports of PACKAGES led to ROOT. Raises SyntaxError for one that cannot be."""
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source, name)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] in PACKAGES:
            _replace(lines, node, "from ", f"from {ROOT}.")
        elif isinstance(node, ast.Import) and any(each.name.split(".")[0] in PACKAGES for each in node.names):
            only = node.names[0]
            if len(node.names) > 1 or "." in only.name:
                raise SyntaxError(f"{name}:{node.lineno}: write `from package import module` here")
            _replace(lines, node, "import ", f"from {ROOT} import ")
    return COMMAND.sub(f"python -m {ROOT}.", "".join(lines))


def _replace(lines: list[str], node: ast.stmt, old: str, new: str) -> None:
    # The columns of ast count bytes of UTF-8.
    line = lines[node.lineno - 1].encode()
    head, tail = line[: node.col_offset].decode(), line[node.col_offset :].decode()
    if not tail.startswith(old):
        raise SyntaxError(f"line {node.lineno} does not begin with {old!r}: {tail!r}")
    lines[node.lineno - 1] = head + new + tail.removeprefix(old)


class BuildPackages(build_py):
    """Copies the packages, then moves them below ROOT."""

    def run(self) -> None:
        if self.editable_mode:
            super().run()
            return
        built = Path(self.build_lib)
        # What a build before left there would be in this wheel as well.
        shutil.rmtree(built, ignore_errors=True)
        super().run()
        for package in PACKAGES:
            # A kernel that was built beside the sources is not copied: the one of this build takes its place.
            for stale in (built / package).rglob("_compiled*.so"):
                stale.unlink()
            shutil.copytree(built / package, built / ROOT / package, dirs_exist_ok=True)
            shutil.rmtree(built / package)
        for path in [*(built / ROOT).rglob("*.py"), *built.glob("*.py")]:
            path.write_text(moved(path.read_text("utf-8"), str(path)), "utf-8")


class BuildKernel(build_ext):
    """Compiles the kernel, then moves it beside its package."""

    def run(self) -> None:
        super().run()
        if self.editable_mode or self.inplace:
            return
        built = Path(self.build_lib)
        target = built / ROOT / "kernel"
        target.mkdir(parents=True, exist_ok=True)
        for path in (built / "kernel").glob("_compiled*"):
            path.replace(target / path.name)
        shutil.rmtree(built / "kernel", ignore_errors=True)


setup(
    cmdclass={"build_py": BuildPackages, "build_ext": BuildKernel},
    ext_modules=[
        Extension(
            "kernel._compiled",
            sources=sorted(glob("kernel/src/*.c")),
            depends=sorted(glob("kernel/src/*.h")),
            extra_compile_args=["-std=c11", "-O2", "-g0"],
            py_limited_api=bool(ABI),
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": ABI}} if ABI else {},
)
