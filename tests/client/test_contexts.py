"""Which broker a command uses: options, variables, contexts, the default."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.client.fake_broker import FakeBroker
from topics_client.cli import app
from topics_client.commands import contexts
from topics_client.commands.contexts import ContextError
from topics_client.commands.reach import ANY, DEFAULT_URL, Reach, resolve
from topics_client.commands.terminal import ExitCode

Topics = Callable[..., Result]
NOBODY = "http://127.0.0.1:1"


@pytest.fixture
def topics() -> Topics:
    """Runs `topics ...` without a variable that names a broker."""

    def run(*arguments: str, status: int = 0, env: dict[str, str] | None = None) -> Result:
        result = CliRunner().invoke(app, list(arguments), env=env or {})
        assert result.exit_code == status, result.output
        return result

    return run


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_text("secret\n")
    return file


def test_a_context_names_broker_and_key(topics: Topics, fake: FakeBroker, fake_url: str, key_file: Path) -> None:
    fake.key = "secret"
    topics("context", "add", "prod", "--url", fake_url, "--key-file", str(key_file))
    topics("list", "--context", "prod")
    topics("list", env={"TOPICS_CONTEXT": "prod"})
    topics("context", "use", "prod")
    topics("list")
    assert len(fake.requests) == 3


def test_only_the_owner_can_read_the_file_and_it_contains_no_key(topics: Topics, key_file: Path) -> None:
    topics("context", "add", "prod", "--url", "https://broker.example", "--key-file", str(key_file))
    file = contexts.path()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert "secret" not in file.read_text()
    assert os.listdir(file.parent) == [file.name]


def test_a_relative_key_file_is_stored_as_an_absolute_path(
    topics: Topics, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(key_file.parent)
    topics("context", "add", "prod", "--url", "https://broker.example", "--key-file", "key")
    [line] = topics("context", "list", "--json").stdout.splitlines()
    assert json.loads(line) == {
        "context": "prod",
        "url": "https://broker.example",
        "key_file": str(key_file),
        "current": False,
    }


def test_options_override_variables_and_variables_override_contexts(key_file: Path, tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.pem"
    stored = contexts.Contexts(
        "one", {name: contexts.Context(f"http://{name}", str(key_file)) for name in ("one", "two")}
    )
    stored.contexts["open"] = contexts.Context("http://open", ca_file=str(ca_file))
    contexts.save(stored)
    both = {"TOPICS_URL": "http://variable", "TOPICS_TOKEN": "variable"}
    assert resolve(Reach(url="http://option", token="option"), both)[:2] == ("http://option", "option")
    assert resolve(Reach(url="http://option"), both)[:2] == ("http://option", "variable")
    assert resolve(ANY, {**both, "TOPICS_CONTEXT": "two"})[:2] == ("http://variable", "variable")
    assert resolve(Reach(context="two"), both)[:2] == ("http://two", "secret")
    assert resolve(Reach(context="two", token="option"), both)[:2] == ("http://two", "option")
    assert resolve(Reach(context="open"), both) == ("http://open", "variable", ca_file, None, None)
    assert resolve(ANY, {"TOPICS_CONTEXT": "two"})[:2] == ("http://two", "secret")
    assert resolve(ANY, {"TOPICS_TOKEN": "variable"})[:2] == ("http://one", "variable")
    assert resolve(ANY, {}) == ("http://one", "secret", None, None, None)
    contexts.save(contexts.Contexts())
    assert resolve(ANY, {}) == (DEFAULT_URL, None, None, None, None)


def test_the_key_of_a_context_is_sent_to_its_broker_only(key_file: Path) -> None:
    contexts.save(contexts.Contexts("one", {"one": contexts.Context("http://one", str(key_file))}))
    assert resolve(Reach(url="http://option"), {}).token is None
    assert resolve(ANY, {"TOPICS_URL": "http://variable"}).token is None
    with pytest.raises(ContextError, match="--url and --context"):
        resolve(Reach(url="http://option", context="one"), {})


def test_a_certificate_option_replaces_the_key_of_the_context() -> None:
    own, other = Path("/own.pem"), Path("/other.pem")
    of_context = contexts.Context("https://one", cert="/one.pem", key="/one.key")
    contexts.save(contexts.Contexts("one", {"one": of_context}))
    assert resolve(ANY, {})[3:] == (Path("/one.pem"), Path("/one.key"))
    assert resolve(Reach(cert=own), {})[3:] == (own, None)
    assert resolve(Reach(cert=own, key=other), {})[3:] == (own, other)
    # The key is sent to no other address.
    assert resolve(Reach(url="https://option"), {})[3:] == (None, None)
    assert resolve(Reach(url="https://option", cert=own), {})[3:] == (own, None)
    with pytest.raises(ContextError, match="--key is the key of --cert"):
        resolve(Reach(key=other), {})


def test_an_unknown_context_is_a_usage_error(topics: Topics, key_file: Path) -> None:
    assert "There are none yet" in topics("list", "--context", "prod", status=ExitCode.USAGE).stderr
    topics("context", "add", "prod", "--url", NOBODY, "--key-file", str(key_file))
    assert "There are: prod." in topics("list", "--context", "other", status=ExitCode.USAGE).stderr
    refusal = topics("list", "--json", env={"TOPICS_CONTEXT": "other"}, status=ExitCode.USAGE).stderr
    assert "There are: prod." in json.loads(refusal)["error"]["message"]
    topics("context", "use", "other", status=ExitCode.USAGE)
    topics("context", "use", status=ExitCode.USAGE)
    topics("context", "use", "prod", "--none", status=ExitCode.USAGE)
    topics("context", "add", "a b", "--url", NOBODY, status=ExitCode.USAGE)
    topics("context", "add", "b", "--url", "ftp://x", status=ExitCode.USAGE)
    topics("context", "add", "b", "--url", NOBODY, "--key-file", "missing", status=ExitCode.USAGE)
    key_file.write_text("\n")
    assert "is empty" in topics("list", "--context", "prod", status=ExitCode.USAGE).stderr
    key_file.unlink()
    assert "cannot be read" in topics("list", "--context", "prod", status=ExitCode.USAGE).stderr


def test_a_damaged_file_is_reported_and_not_overwritten(topics: Topics) -> None:
    contexts.save(contexts.Contexts())
    contexts.path().write_text("{")
    assert "cannot be read" in topics("list", status=ExitCode.USAGE).stderr
    topics("context", "add", "prod", "--url", NOBODY, status=ExitCode.USAGE)
    assert contexts.path().read_text() == "{"
    # A command that names its broker needs no contexts.
    topics("list", "--url", NOBODY, status=ExitCode.UNREACHABLE)


def test_contexts_are_listed_replaced_and_deleted(topics: Topics) -> None:
    assert "There are no contexts yet." in topics("context", "list").stderr
    for name in ("b", "a"):
        assert topics("context", "add", name, "--url", NOBODY).stdout == f"Added the context {name}: {NOBODY}.\n"
    assert "Replaced" in topics("context", "add", "a", "--url", "https://broker.example/").stdout
    topics("context", "use", "b")
    assert [line.split() for line in topics("context", "list").stdout.splitlines()] == [
        ["CONTEXT", "URL", "KEY", "FILE", "CACERT", "CERT", "IN", "USE"],
        ["a", "https://broker.example", "-", "-", "-"],
        ["b", NOBODY, "-", "-", "-", "yes"],
    ]
    topics("context", "use", "--none")
    assert contexts.in_use() is None
    topics("context", "use", "b")
    assert topics("context", "delete", "b").stdout == "Deleted the context b.\n"
    assert json.loads(topics("context", "delete", "b", "--json").stdout) == {"context": "b", "deleted": False}
    assert contexts.load() == contexts.Contexts(None, {"a": contexts.Context("https://broker.example")})


def test_names_complete_with_the_broker_of_the_context(topics: Topics, fake: FakeBroker, fake_url: str) -> None:
    fake.topic("orders")
    topics("context", "add", "prod", "--url", fake_url)
    for words, found in (
        ("topics read --context prod or", ["plain,orders"]),
        ("topics list --context pr", ["plain,prod"]),
        ("topics context use p", ["plain,prod"]),
        ("topics read --context nope or", []),
    ):
        environment = {
            "_TOPICS_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
        result = CliRunner().invoke(app, [], prog_name="topics", env=environment)
        assert result.stdout.split() == found, words
