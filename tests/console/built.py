"""The console as a build makes it, for tests that open it in a browser.

    build()                                            # once, unless the sources changed
    with console(chromium, server.url, tmp_path) as page:
        page.click("New topic")
        page.fill("Name", "orders")

The page is driven by clicks and keys of the browser's debugging port, as a user would.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.http.browser.opened_page import OpenedPage

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "console"
STATIC = ROOT / "broker" / "console" / "static"
AXE = FOLDER / "node_modules" / "axe-core" / "axe.min.js"
BUILD_S = 280
SIZES = {"wide": (1280, 800), "narrow": (390, 844)}
#: Findings of axe-core that must not be there.
SERIOUS = ("serious", "critical")
#: Finds the visible element of these kinds whose text or name is, or else begins with, what is wanted.
_FIND = """
globalThis.find = (wanted, kinds) => {
  const name = (each) => (each.getAttribute("aria-label") ?? each.innerText ?? "").trim();
  const scope = document.querySelector("dialog[open]") ?? document;
  const seen = [...scope.querySelectorAll(kinds)].filter((each) => each.getClientRects().length > 0 && !each.disabled);
  return seen.find((each) => name(each) === wanted) ?? seen.find((each) => name(each).startsWith(wanted));
};
"""
_PROBLEMS = """
globalThis.problems = [];
addEventListener('securitypolicyviolation', (event) => problems.push(`${event.violatedDirective} ${event.blockedURI}`));
addEventListener('error', (event) => problems.push(event.message));
"""
_CLICKABLE = "button, a, [role=option], input[type=checkbox]"


def build() -> Path:
    """Build the console unless that was done from the same sources. Returns the folder with its files."""
    sources = [
        path
        for folder in (FOLDER / "src", ROOT / "clients/typescript/src")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "generated" not in path.parts
    ]
    sources += [FOLDER / name for name in ("build.mjs", "build.py", "package.json", "package-lock.json")]
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build" / "console.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = STATIC / ".built"
        if not stamp.exists() or stamp.read_text() != wanted or not AXE.exists():
            command = [sys.executable, str(FOLDER / "build.py")]
            done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            stamp.write_text(wanted)
    return STATIC


class ConsolePage(OpenedPage):
    """The console in a browser. What it does wrong is collected from its start: see `problems`."""

    def __enter__(self) -> ConsolePage:
        super().__enter__()
        self.call("Page.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source=_PROBLEMS + _FIND)
        self.evaluate(_PROBLEMS + _FIND)
        return self

    def visit(self, url: str) -> None:
        """Open the console of the broker at this address, as at a first visit."""
        self.look()
        # What a page before has stored is removed at the address that it belongs to.
        for address in ("about:blank", f"{url}/console", "about:blank", f"{url}/console"):
            self.call("Page.navigate", url=address)
            self.until("document.readyState === 'complete'")
            if address != "about:blank":
                self.evaluate("sessionStorage.clear(), localStorage.clear()")

    def problems(self) -> list[str]:
        """Violations of the policy, errors of scripts, and requests to other hosts."""
        foreign = self.evaluate(
            "performance.getEntriesByType('resource').map((each) => each.name)"
            ".filter((name) => !name.startsWith(location.origin))"
        )
        return [*self.evaluate("problems"), *foreign]

    def look(self, size: str = "wide", *, dark: bool = False) -> None:
        """Show the page in this size and these colours."""
        width, height = SIZES[size]
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, address: str, shows: str) -> None:
        """Go to an address of the console, and wait for a text."""
        self.evaluate(f"location.hash = {json.dumps(address)}")
        self.shows(shows)

    def shows(self, text: str) -> None:
        """Wait until the page shows a text."""
        self.until(f"document.body.innerText.includes({json.dumps(text)})")

    def hides(self, text: str) -> None:
        """Wait until the page does not show a text."""
        self.until(f"!document.body.innerText.includes({json.dumps(text)})")

    def click(self, name: str) -> None:
        """Click a button, link, option or checkbox by its name, once it is there."""
        found = f"find({json.dumps(name)}, {json.dumps(_CLICKABLE)})"
        self.until(f"{found} !== undefined")
        self.evaluate(f"{found}.scrollIntoView({{block: 'center'}})")
        box = self.evaluate(
            f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({found}.getBoundingClientRect())"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def fill(self, label: str, text: str) -> None:
        """Type a text into the field with this label, instead of what was there; or choose an option by its value."""
        wanted = json.dumps(label)
        field = (
            "(() => { const scope = document.querySelector('dialog[open]') ?? document;"
            "const label = [...scope.querySelectorAll('label')]"
            f".find((each) => each.innerText.trim().startsWith({wanted}));"
            "return label && document.getElementById(label.htmlFor); })()"
        )
        # In one step each: a page may show its field anew at any moment. A field that is not shown yet takes no focus,
        # and what is typed then goes elsewhere.
        choose = (
            "((field) => { if (!field) return 'none'; field.focus();"
            "if (document.activeElement !== field) return 'none';"
            "if (field.tagName !== 'SELECT') { field.select(); return 'text'; }"
            f"field.value = {json.dumps(text)};"
            f"field.dispatchEvent(new Event('change', {{bubbles: true}})); return 'chosen'; }})({field})"
        )
        self.until(f"(globalThis.filled = {choose}) !== 'none'")
        if self.evaluate("filled") == "text":
            self.type(text)

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self.call("Input.insertText", text=text)

    def press(self, *keys: str) -> None:
        """Press keys one after the other: letters, or names such as Enter."""
        for key in keys:
            text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
            shown: dict[str, Any] = {"key": key, **({"text": text} if text else {})}
            if key in ("Enter", "Escape", "Tab"):
                shown["windowsVirtualKeyCode"] = {"Enter": 13, "Escape": 27, "Tab": 9}[key]
            self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **shown)
            self.call("Input.dispatchKeyEvent", type="keyUp", **shown)

    def findings(self, *rules: str) -> list[str]:
        """The serious findings of axe-core on the page as it is: those of all its rules, or of these."""
        if not self.evaluate("'axe' in globalThis"):
            self.evaluate(AXE.read_text())
        # Text that is fading in has less contrast than it will have.
        self.until("document.getAnimations().every((each) => each.playState === 'finished')")
        options = {"resultTypes": ["violations"], **({"runOnly": [*rules]} if rules else {})}
        found = self.evaluate(f"axe.run(document, {json.dumps(options)})")
        return [
            f"{each['id']}: {each['help']}: {node['target']} {node['failureSummary']}"
            for each in found["violations"]
            if each["impact"] in SERIOUS
            for node in each["nodes"][:3]
        ]


def console(chromium: str, url: str, folder: Path) -> ConsolePage:
    """The console of the broker at this address, in a browser."""
    build()
    return ConsolePage(chromium, f"{url}/console", folder)
