"""Chromium for tests of pages: how it is started, pictures, accessibility."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync",
         "--disable-component-update", "--no-first-run", "--disable-dev-shm-usage"]  # fmt: skip
AXE = "4.10.3"  # of axe-core, which npm fetches when it is first needed


@contextlib.contextmanager
def launched():
    """A Chromium that is closed in the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


class Windows:
    """Windows of their own, in which nothing may go wrong. patience: ms to wait. bad: the types of console messages."""

    def __init__(self, browser, patience, bad):
        self.browser, self.patience, self.bad = browser, patience, bad
        self.contexts, self.errors = [], []

    def opened(self, address, width, height, **how):
        self.contexts.append(self.browser.new_context(viewport={"width": width, "height": height}, **how))
        page = self.contexts[-1].new_page()
        page.set_default_timeout(self.patience)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda said: self.errors.append(said.text) if said.type in self.bad else None)
        page.goto(address)
        return page

    def close(self):
        for one in self.contexts:
            one.close()
        assert not self.errors


def narrow(tab):
    """Whether nothing is wider than the window."""
    return tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def picture(tab, name):
    """Save a screenshot if HARNESS_PICTURES is set."""
    if folder := os.environ.get("HARNESS_PICTURES"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        tab.screenshot(path=Path(folder) / f"{name}.png")


def axe_source():
    """The script of axe-core, from npm; kept in the user's cache. The test is skipped where npm cannot get it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "harness-tests" / f"axe-core-{AXE}"
    script = cache / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        if (npm := shutil.which("npm")) is None:
            pytest.skip("axe-core comes from npm, which is not here: apt-get install npm")
        cache.mkdir(parents=True, exist_ok=True)
        words = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(cache), f"axe-core@{AXE}"]
        got = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        if got.returncode or not script.exists():
            pytest.skip(f"npm could not get axe-core {AXE}: {got.stderr.strip().splitlines()[-1:]}")
    return script.read_text("utf-8")


def serious_faults(tab):
    """What axe-core finds serious or critical on a page whose context has bypass_csp: [rule, elements]."""
    if not tab.evaluate("'axe' in window"):
        tab.evaluate(axe_source())
    found = tab.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        [one["id"], [node["html"][:200] for node in one["nodes"]]]
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]
