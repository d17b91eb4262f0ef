"""Every test in this folder that asks for `twin` runs with both: the Python kernel, and the compiled one, built
anew."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

import kernel
from kernel import plain
from tests.kernel.build import build, can_build, load

PYTHON, COMPILED = "python", "compiled"
TWINS = [PYTHON, COMPILED] if can_build() else [PYTHON]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return load(build(tmp_path_factory.mktemp("kernel")))


@pytest.fixture(scope="session")
def portable(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Without the code for some machines only."""
    return load(build(tmp_path_factory.mktemp("kernel"), "-DKERNEL_PORTABLE"))


def serve(code: ModuleType) -> None:
    """Make `kernel` use this code."""
    kernel._code = code
    kernel.checksum, kernel.crc32c = code.checksum, code.crc32c


@pytest.fixture(params=TWINS, scope="module")
def twin(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of the kernel that is used until the end of the module."""
    before = kernel._code
    serve(plain if request.param == PYTHON else request.getfixturevalue("compiled"))
    yield request.param
    serve(before)
