"""The `topics` program inside this process: its output and exit status."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.client.fake_broker import FakeBroker, answer_lost, error, no_connection, refused
from topics_client.cli import app
from topics_client.commands.terminal import ExitCode

Topics = Callable[..., Result]

COMMANDS = ["serve", "list", "put", "append", "read", "tail", "state", "delete"]
COMMANDS += ["work", "claim", "ack", "nack", "extend", "leases", "pause", "resume", "purge", "redrive"]
COMMANDS += ["get", "status", "bench"]
NOBODY = "http://127.0.0.1:1"


@pytest.fixture
def topics(fake_url: str) -> Topics:
    """Runs `topics ...` against the fake broker."""

    def run(*arguments: str, stdin: str | bytes = "", url: str = fake_url) -> Result:
        return CliRunner().invoke(app, list(arguments), input=stdin, env={"TOPICS_URL": url})

    return run


def test_help_lists_the_commands_and_the_exit_statuses(topics: Topics) -> None:
    text = topics("--help").stdout
    for word in [*COMMANDS, "130 interrupted", "3 the broker cannot be reached", "topics append"]:
        assert word in " ".join(text.split()), word


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_the_exit_statuses(topics: Topics, command: str) -> None:
    result = topics(command, "--help")
    assert result.exit_code == 0
    assert "Exit status" in result.stdout


def test_the_version_is_shown(topics: Topics) -> None:
    assert topics("--version").stdout.startswith("topics ")


@pytest.mark.parametrize("arguments", [["lst"], ["read"], ["append", "t", "--batch", "0"], ["put", "t", "--type", "x"]])
def test_a_wrong_command_line_is_exit_status_2(topics: Topics, arguments: list[str]) -> None:
    assert topics(*arguments).exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["put", "t"],
        ["append", "t", "-d", "1"],
        ["read", "t"],
        ["tail", "t"],
        ["state", "t"],
        ["delete", "t", "-y"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_an_unreachable_broker_is_exit_status_3_at_once(topics: Topics, arguments: list[str]) -> None:
    result = topics(*arguments, url=NOBODY)
    assert result.exit_code == ExitCode.UNREACHABLE
    assert result.stdout == ""
    assert f"No broker can be reached at {NOBODY}" in result.stderr
    assert "topics serve" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["state", "read", "tail"])
def test_an_unknown_topic_is_exit_status_1_with_advice(topics: Topics, command: str) -> None:
    result = topics(command, "nope")
    assert result.exit_code == ExitCode.REFUSED
    assert "There is no topic named 'nope'" in result.stderr
    assert "topics list" in result.stderr


@pytest.mark.parametrize(("said", "meant"), [("lst", "list"), ("consumer", "consumers"), ("qqqq", None)])
def test_the_command_that_was_probably_meant_is_named(topics: Topics, said: str, meant: str | None) -> None:
    result = topics(said)
    assert result.exit_code == ExitCode.USAGE
    assert f"No such command '{said}'." in result.stderr
    assert ("Did you mean" in result.stderr) == (meant is not None)
    assert meant is None or f"Did you mean '{meant}'?" in result.stderr


def test_a_name_no_topic_can_have_is_a_wrong_command_line(topics: Topics, fake: FakeBroker) -> None:
    assert topics("state", "a/b").exit_code == ExitCode.USAGE
    assert fake.requests == []


def test_an_error_as_json_is_the_apis_error_object(topics: Topics) -> None:
    result = topics("state", "nope", "--json")
    assert result.stdout == ""
    body = json.loads(result.stderr)["error"]
    assert (body["code"], body["detail"]) == ("topic_not_found", {"topic": "nope"})
    assert json.loads(topics("list", "--json", url=NOBODY).stderr)["error"]["code"] == "unreachable"


def test_the_command_waits_for_a_starting_broker(topics: Topics, fake: FakeBroker) -> None:
    fake.troubles.append(refused(503, "not_ready", detail={"retry_after_ms": 1}))
    result = topics("list")
    assert result.exit_code == 0
    assert "Trying again" in result.stderr


def test_a_broker_that_stays_unready_is_exit_status_3(topics: Topics, fake: FakeBroker) -> None:
    fake.troubles.append(refused(503, "not_ready", detail={"retry_after_ms": 999_999}))
    assert topics("list").exit_code == ExitCode.UNREACHABLE


def test_the_key_is_taken_from_option_or_variable(topics: Topics, fake: FakeBroker, fake_url: str) -> None:
    fake.key = "secret"
    assert topics("list", "--token", "secret").exit_code == 0
    environment = {"TOPICS_URL": fake_url, "TOPICS_TOKEN": "secret"}
    assert CliRunner().invoke(app, ["list"], env=environment).exit_code == 0
    refusal = topics("list")
    assert refusal.exit_code == ExitCode.REFUSED
    assert "TOPICS_TOKEN" in refusal.stderr


def test_append_sends_lines_in_batches_and_prints_the_seqs(topics: Topics, fake: FakeBroker) -> None:
    result = topics("append", "t", "--batch", "2", "--tag", "g", "--node", "n", stdin="1\n2\n\n3\n")
    assert result.stdout == "Appended 3 records to t (seqs 1 to 3).\n"
    bodies = [json.loads(r.content) for r in fake.requests if r.method == "POST"]
    assert [[r["data"] for r in body["records"]] for body in bodies] == [[1, 2], [3]]
    assert all(body["node"] == "n" and body["records"][0]["tag"] == "g" for body in bodies)


def test_append_takes_values_from_the_command_line(topics: Topics, fake: FakeBroker) -> None:
    assert topics("append", "t", "-d", '{\n"a":1}', "--data", "2").exit_code == 0
    assert len(fake.topics["t"].records) == 2


def test_append_takes_a_file_or_a_dash(topics: Topics, fake: FakeBroker, tmp_path: Path) -> None:
    lines = tmp_path / "lines.ndjson"
    lines.write_text("1\n2\n")
    assert topics("append", "t", str(lines)).exit_code == 0
    assert topics("append", "t", "-", stdin="3\n").exit_code == 0
    assert len(fake.topics["t"].records) == 3


def test_append_takes_exactly_one_source(topics: Topics, tmp_path: Path) -> None:
    assert topics("append", "t", "-", "-d", "1").exit_code == ExitCode.USAGE
    assert topics("append", "t", str(tmp_path / "missing")).exit_code == ExitCode.USAGE


def test_append_without_records_says_so(topics: Topics) -> None:
    result = topics("append", "t", stdin="\n\n")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no records" in result.stderr


def test_append_as_json_sums_up(topics: Topics) -> None:
    assert json.loads(topics("append", "t", "--json", stdin="1\n2\n").stdout) == {
        "topic": "t",
        "complete": True,
        "records": 2,
        "repeated": 0,
        "batches": 1,
        "first_seq": 1,
        "last_seq": 2,
        "last_line": 2,
    }


def test_an_invalid_json_line_is_named_and_stops_the_append(topics: Topics, fake: FakeBroker) -> None:
    result = topics("append", "t", "--batch", "2", stdin='1\n2\n3\n{"a":}\n5\n')
    assert result.exit_code == ExitCode.USAGE
    assert "Line 4 is not valid JSON" in result.stderr
    assert "Stored: 2 records, up to line 2. To continue, give the input from line 3 on." in result.stderr
    assert len(fake.topics["t"].records) == 2


def test_how_far_an_append_got_is_there_as_json_too(topics: Topics) -> None:
    result = topics("append", "t", "--json", "--batch", "1", stdin="1\nx\n")
    assert result.exit_code == ExitCode.USAGE
    assert (json.loads(result.stdout)["complete"], json.loads(result.stdout)["last_line"]) == (False, 1)
    assert "Line 2" in json.loads(result.stderr)["error"]["message"]


def test_a_record_refused_by_the_broker_is_named_by_its_line(topics: Topics, fake: FakeBroker) -> None:
    detail = {"field": "records[1].data"}
    fake.troubles.extend([None, lambda request, proceed: error(400, "record_too_large", "Too large.", detail)])
    result = topics("append", "t", stdin="1\n\n2\n")
    assert result.exit_code == ExitCode.REFUSED
    assert "Line 3: Too large." in result.stderr


def test_a_repeated_append_with_the_same_key_prefix_stores_no_duplicate(topics: Topics, fake: FakeBroker) -> None:
    lines = "".join(f"{n}\n" for n in range(5))
    assert topics("append", "t", "--batch", "2", "--key-prefix", "run1", stdin=lines).exit_code == 0
    result = topics("append", "t", "--batch", "2", "--key-prefix", "run1", stdin=lines)
    assert "Of these, 5 had been stored by an earlier run" in result.stdout
    assert len(fake.topics["t"].records) == 5


def test_a_repeated_append_continues_after_the_last_stored_line(topics: Topics, fake: FakeBroker) -> None:
    arguments = ["append", "t", "--batch", "1", "--key-prefix", "run1", "--retry-for", "0"]
    fake.troubles.extend([None, None, answer_lost])
    broken = topics(*arguments, stdin="1\n2\n3\n")
    assert broken.exit_code == ExitCode.UNREACHABLE
    assert "Stored: 1 record, up to line 1. Unknown: whether lines 2 to 2 were stored." in broken.stderr
    assert "Run the same command again" in broken.stderr
    assert topics(*arguments, stdin="1\n2\n3\n").exit_code == 0
    assert [json.loads(r or b"")["data"] for r in fake.topics["t"].records] == [1, 2, 3]


def test_other_lines_under_a_used_key_prefix_are_refused_not_dropped(topics: Topics) -> None:
    topics("append", "t", "--key-prefix", "run1", stdin="1\n")
    result = topics("append", "t", "--key-prefix", "run1", stdin="2\n")
    assert result.exit_code == ExitCode.REFUSED
    assert "another --key-prefix" in result.stderr


def test_an_append_is_retried_while_the_broker_is_away(topics: Topics, fake: FakeBroker) -> None:
    fake.troubles.extend([None, no_connection, answer_lost])
    assert topics("append", "t", stdin="1\n").exit_code == 0
    assert len(fake.topics["t"].records) == 1


def test_read_prints_a_line_a_record(topics: Topics) -> None:
    topics("append", "t", "--tag", "g", "--node", "n", stdin='{"a": 1}\n')
    assert topics("read", "t").stdout == '      1  2023-11-14 22:13:20.001Z  #g  @n  {"a": 1}\n'


def test_read_as_json_gives_data_byte_for_byte(topics: Topics, fake: FakeBroker) -> None:
    data = '{"big":123456789012345678901234567890, "far":1e400,"far":1.10,"text":"\\u00e9é"}'
    topics("append", "t", stdin=data + "\n")
    assert topics("read", "t", "--json").stdout == '{"$seq":1,"$ts":1700000000001,"data":' + data + "}\n"


def test_read_as_json_is_a_line_a_record_whatever_is_inside(topics: Topics, fake: FakeBroker) -> None:
    fake.topic("t")[0].records.append(b'{"$seq":1,"$ts":1,"data":{\r\n"a":1}}')
    assert topics("read", "t", "--json").stdout == '{"$seq":1,"$ts":1,"data":{  "a":1}}\n'


def test_read_continues_until_the_end_or_the_limit(topics: Topics, fake: FakeBroker) -> None:
    topics("append", "t", stdin="".join(f"{n}\n" for n in range(2500)))
    assert len(topics("read", "t", "--json").stdout.splitlines()) == 2500
    assert len(topics("read", "t", "--json", "--limit", "1500").stdout.splitlines()) == 1500
    assert json.loads(topics("read", "t", "--json", "--from-seq", "2499").stdout)["$seq"] == 2500


def test_a_gap_is_printed_as_a_separate_line(topics: Topics, fake: FakeBroker) -> None:
    topics("append", "t", stdin="1\n2\n3\n")
    fake.topics["t"].evict_floor = 3
    gap, record = map(json.loads, topics("read", "t", "--json").stdout.splitlines())
    assert (gap["tombstone"]["reason"], gap["tombstone"]["gap_to"], record["$seq"]) == ("cap", 2, 3)
    assert "seqs 1 to 2 are gone (cap), at most 2 records" in topics("read", "t").stdout


def test_a_tag_with_a_star_is_sent_as_a_pattern(topics: Topics, fake: FakeBroker) -> None:
    topics("append", "t", stdin="1\n")
    topics("read", "t", "--tag", "order.*")
    topics("read", "t", "--tag", "order")
    sent = [json.loads(r.content).get("tag") for r in fake.requests if r.url.path.endswith("/diff")]
    assert sent == [["tag", "Glob", "order.*"], "order"]


def test_control_characters_of_strangers_do_not_reach_the_terminal(topics: Topics) -> None:
    topics("append", "t", "--tag", "\x1b[31m", stdin='"\u009b31m"\n')
    output = topics("read", "t").stdout
    assert "\x1b" not in output
    assert "\u009b" not in output
    assert r"#\x1b[31m" in output


def test_tail_prints_the_last_records_and_follows_until_the_topic_is_deleted(topics: Topics, fake: FakeBroker) -> None:
    topics("append", "t", stdin="".join(f"{n}\n" for n in range(20)))
    fake.requests.clear()
    fake.troubles.extend([None, None, None, refused(404, "topic_not_found")])
    result = topics("tail", "t", "-n", "3", "--json")
    assert [json.loads(line)["$seq"] for line in result.stdout.splitlines()] == [18, 19, 20]
    assert result.exit_code == ExitCode.REFUSED


def test_list_is_a_table_or_a_line_a_topic(topics: Topics) -> None:
    assert "no topics yet" in topics("list").stderr
    name = "long." + "x" * 200
    for topic in ("b", "a", name):
        topics("append", topic, stdin="1\n2\n")
    heading, first, *_, last = topics("list").stdout.splitlines()
    assert heading.split() == [
        "TOPIC",
        "TYPE",
        "PARTS",
        "RECORDS",
        "BYTES",
        "EARLIEST",
        "HEAD",
        "DURABLE",
        "DEPTH",
        "OLDEST",
        "JOB",
    ]
    assert first.split()[:4] == ["a", "log", "1", "2"]
    assert last.split()[0] == name
    assert [json.loads(line)["topic"] for line in topics("list", "--json").stdout.splitlines()] == ["a", "b", name]
    assert len(topics("list", "lo", "--json").stdout.splitlines()) == 1


def test_put_creates_and_changes_a_topic(topics: Topics, fake: FakeBroker) -> None:
    assert topics("put", "t", "--durability", "fsync", "--cap-records", "5").stdout.startswith("Created t (log")
    assert topics("put", "t", "--set", "lease_ms=5", "--set", "dead_letter=x").stdout.startswith("Updated t")
    assert json.loads(fake.requests[-1].content) == {"lease_ms": 5, "dead_letter": "x"}
    assert topics("put", "t", "--set", "nonsense").exit_code == ExitCode.USAGE


@pytest.mark.parametrize("keep", [[], ["--keep"]])
def test_put_keeps_settings_that_are_not_given(topics: Topics, fake: FakeBroker, keep: list[str]) -> None:
    topics("put", "t", "--durability", "fsync", "--cap-records", "5", *keep)
    topics("put", "t", "--cap-records", "7", *keep)
    assert fake.topics["t"].config == {"type": "log", "durability": "fsync", "cap_records": 7}


def test_put_resets_other_settings_only_with_replace(topics: Topics, fake: FakeBroker) -> None:
    topics("put", "t", "--durability", "fsync", "--cap-records", "5")
    assert topics("put", "t", "--cap-records", "7", "--keep", "--replace").exit_code == ExitCode.USAGE
    topics("put", "t", "--cap-records", "7", "--replace")
    assert fake.topics["t"].config == {"type": "log", "durability": "disk", "cap_records": 7}


def test_state_is_a_table_or_the_brokers_answer(topics: Topics) -> None:
    topics("put", "t")
    topics("append", "t", stdin="1\n")
    lines = [line.split() for line in topics("state", "t").stdout.splitlines()]
    assert lines[0] == ["t"]
    for row in (["records", "1"], ["head", "seq", "1"], ["last", "write", "never"], ["durability", "disk"]):
        assert row in lines
    assert json.loads(topics("state", "t", "--json").stdout)["something_new"] is True


def test_state_does_not_count_as_a_read(topics: Topics, fake: FakeBroker) -> None:
    topics("state", "t")
    assert fake.requests[-1].url.params["touch"] == "false"


def test_delete_without_yes_is_refused_without_a_terminal(topics: Topics, fake: FakeBroker) -> None:
    topics("append", "t", stdin="1\n")
    result = topics("delete", "t", stdin="y\n")
    assert result.exit_code == ExitCode.USAGE
    assert "--yes" in result.stderr
    assert "t" in fake.topics


def test_delete_with_yes_of_an_absent_topic_is_no_error(topics: Topics, fake: FakeBroker) -> None:
    topics("append", "t", stdin="1\n")
    assert topics("delete", "t", "--yes").stdout == "Deleted t.\n"
    again = topics("delete", "t", "--yes")
    assert (again.exit_code, again.stdout) == (0, "There is no topic named t; nothing was deleted.\n")
    assert json.loads(topics("delete", "t", "-y", "--json").stdout)["deleted"] is False


def test_delete_if_empty_refuses_a_topic_with_records(topics: Topics) -> None:
    topics("append", "t", stdin="1\n")
    result = topics("delete", "t", "--yes", "--if-empty")
    assert result.exit_code == ExitCode.REFUSED
    assert "still holds records" in result.stderr
