"""The compiled kernel: an optional part. Where it cannot be built, kernel/plain.py serves.

All else about the project is in pyproject.toml.
"""

from __future__ import annotations

import sysconfig
from glob import glob

from setuptools import Extension, setup

# One build serves every later Python, but for those without the interpreter's lock, which have no stable ABI yet.
ABI = "" if sysconfig.get_config_var("Py_GIL_DISABLED") else "cp311"

setup(
    ext_modules=[
        Extension(
            "kernel._compiled",
            sources=sorted(glob("kernel/src/*.c")),
            depends=["kernel/src/kernel.h"],
            extra_compile_args=["-std=c11", "-O2", "-g0"],
            py_limited_api=bool(ABI),
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": ABI}} if ABI else {},
)
