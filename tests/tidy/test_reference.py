"""The reference tables of the documents agree with the code: settings, endpoints, error codes, events, metrics."""

from __future__ import annotations

import re

import pytest

from broker.api.app import OPERATIONS as DECLARED
from broker.api.openapi import document
from broker.settings import PREFIX, Settings
from broker.telemetry import metric_table
from tests.support import client_reference, reference, typescript_reference
from tests.tidy.tree import ROOT

API = ROOT / "docs/reference/api.md"


def test_the_documented_settings_are_the_settings_of_the_model() -> None:
    page = reference.SETTINGS.read_text()
    rows = re.findall(rf"^\| `{PREFIX}.*$", page, re.MULTILINE)
    assert len(rows) == len(set(rows))
    assert set(rows) == set(reference.settings_rows().values()), f"run {reference.COMMAND}"


def test_rows_of_settings_are_rewritten_in_place() -> None:
    page = f"# A\n| `{PREFIX}PORT` | old | text |\n# B\n| `{PREFIX}GONE` | 1 | 2 |\n"
    row = reference.settings_rows()[f"{PREFIX}PORT"]
    assert reference.with_settings(page) == f"# A\n{row}\n# B\n| `{PREFIX}GONE` | 1 | 2 |\n"


def test_every_setting_named_by_a_document_exists() -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields} | {
        "TOPICS_URL",
        "TOPICS_TOKEN",
        "TOPICS_CONTEXT",
        "TOPICS_NODE",
        "TOPICS_JOB_SEQ",
        "TOPICS_JOB_TAG",
        "TOPICS_JOB_DELIVERIES",
        "TOPICS_KERNEL",
        "TOPICS_TEST_EXPORT_RECORDS",
        "TOPICS_TEST_FUZZ_KEEP",
        "TOPICS_TEST_FUZZ_S",
        "TOPICS_TEST_SOAK",
        "TOPICS_TEST_BACKEND",
        "TOPICS_TEST_CELLS",
        "TOPICS_TEST_JITTER_MS",
    }
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    named = {name for page in pages for name in re.findall(r"TOPICS_[A-Z_]*[A-Z]", page.read_text())}
    assert named <= known


def test_every_metric_named_by_a_document_exists() -> None:
    known = {each.exposed for each in metric_table.ALL}
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    named = {name for page in pages for name in re.findall(r"`(topics_[a-z0-9_]+)`", page.read_text())}
    assert named - known - {"topics_broker", "topics_client"} == set()


def test_the_documented_endpoints_are_the_served_endpoints() -> None:
    served = {
        f"{method.upper()} {path}" for path, operations in document(DECLARED)["paths"].items() for method in operations
    }
    assert set(re.findall(r"^### `(.+)`$", API.read_text(), re.MULTILINE)) == served


def test_a_default_is_shown_as_it_would_be_set() -> None:
    assert reference.shown_default(64 << 20) == "`67108864` (64 MiB)"
    assert reference.shown_default(4000) == "`4000`"
    assert reference.shown_default(True) == "`true`"
    assert reference.shown_default(None) == ""


@pytest.mark.parametrize("name", reference.TABLES)
def test_the_generated_tables_are_current(name: str) -> None:
    path, make = reference.TABLES[name]
    page = path.read_text()
    assert reference.written(page, name, make()) == page, f"run {reference.COMMAND}"


def test_the_reference_of_the_client_has_every_name_that_it_exports() -> None:
    assert client_reference.undocumented() == set()


def test_the_reference_of_the_client_has_signatures_and_docstrings() -> None:
    page = client_reference.page()
    assert "def read(topic: str, from_seq: int = 0, **options: Unpack[ReadOptions]) -> Diff" in page
    assert "| `wait_ms` | `int` |" in page
    assert "| `tag` | `str \\| None` |" in page
    assert "The records after `from_seq` (exclusive)" in page
    assert "    *,\n    linger_ms: float = 5.0,\n" in page
    assert " at 0x" not in page


def test_the_reference_of_the_typescript_client_has_every_name_that_it_exports() -> None:
    assert typescript_reference.undocumented() == set()


def test_the_reference_of_the_typescript_client_has_signatures_comments_and_schemas() -> None:
    page = typescript_reference.page()
    assert "read<T = unknown>(topic: string, options?: ReadOptions): Promise<ReadAnswer<T>>" in page
    assert "  readonly retryAfterMs?: number,\n" in page
    assert "| `wait_ms?` | `integer \\| null` | How long to wait if there is no record; at most 30000. |" in page
    assert "RecordEvent | TombstoneEvent" in page
    assert "Give jobs back." in page
    assert not re.search(r"\B#[a-z]", page), "private members"


def test_members_of_a_typescript_class_are_its_public_ones() -> None:
    text = """class A<T> extends B {
  override name = "A";
  readonly #hidden: { a: string };
  readonly url: string;
  // -- part --

  /** Says it,
   * twice. */
  async *say({ a, ...b }: Options & { c?: () => void } = {}, d = 3): AsyncGenerator<T, void> {
    if (a) { yield "}"; }
  }

  #private(): void {
    return;
  }

  get on(): boolean {
    return true;
  }
}"""
    assert list(typescript_reference.members(text)) == [
        ("readonly url: string", ""),
        ("say(options?: Options & { c?: () => void }, d?: number): AsyncGenerator<T, void>", "Says it, twice."),
        ("get on(): boolean", ""),
    ]
    with pytest.raises(ValueError, match="no export of C"):
        typescript_reference.declared("export class A {\n}\nclass C {\n}\n", "C")


def test_a_page_without_markers_for_its_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no place"):
        reference.written("# Page\n", "events", "| a |")


def test_a_table_replaces_only_the_previous_table() -> None:
    page = f"a\n<!-- t: made by {reference.COMMAND} -->\nold\n<!-- end of t -->\nz\n"
    once = reference.written(page, "t", reference.table(("x",), [("1|2",)]))
    assert once == f"a\n<!-- t: made by {reference.COMMAND} -->\n\n| x |\n| --- |\n| 1\\|2 |\n\n<!-- end of t -->\nz\n"
    assert reference.written(once, "t", reference.table(("x",), [("1|2",)])) == once
