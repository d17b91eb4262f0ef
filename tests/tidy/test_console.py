"""Tests the reader of documents on small pages. If it missed commands, the executed quick start would prove nothing."""

from __future__ import annotations

import pytest

from tests.support.console import Step, fits, section, steps

PAGE = """
<!-- demo: begin -->
Say:

```console
$ echo one
one
$ echo two && \\
```

```sh
not run
```

```python
print(3)
```

```text
3
```
<!-- demo: end -->

```console
$ outside
```
"""


def test_commands_and_programs_come_in_the_order_of_the_page() -> None:
    assert steps(section(PAGE, "demo")) == [
        Step(kind="console", text="echo one", shown="one\n"),
        Step(kind="console", text="echo two && \\", shown=None),
        Step(kind="python", text="print(3)\n", shown="3\n"),
    ]


def test_a_missing_section_is_an_error() -> None:
    with pytest.raises(ValueError, match="no section"):
        section(PAGE, "other")


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("one\n", "one"),
        ('{"a":1,…}', '{"a":1,"b":{"c":2}}\n'),
        ("a  b\nc", "a b c"),
        ("…", ""),
        ("1\n…\n3", "1\n2\n3"),
        ("a.b", "a.b"),
    ],
)
def test_matching_output_is_accepted(shown: str, printed: str) -> None:
    assert fits(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"), [("one", "one two"), ('{"a":1,…}', '{"a":12}'), ("a.b", "axb"), ("one", ""), ("…3", "1 2")]
)
def test_different_output_is_refused(shown: str, printed: str) -> None:
    assert not fits(shown, printed)
