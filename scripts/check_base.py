"""Run every command that the documents show, and every hint that those commands print, on a base installation.

    make base                                       # in an environment with only the base packages
    python scripts/check_base.py README.md docs/runs.md

The commands of a document run in order, in one folder. Sections that depend on nothing before them form chains of
commands, which run at the same time in separate folders. A hint ("Next:", "To try:", a command in backticks, "set
KEY=VALUE") runs as printed, in the folder and state of that moment. Exit code 1 with a table of failures; 2 if more
than the base packages is installed.
"""

import importlib.util
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import stand_ins
from base_check.pages import PAGES, Page
from base_check.shown import commands
from base_check.walking import Outcome, walk
from measuring import ROOT, called, warm_up

MORE_THAN_BASE = ("torch", "huggingface_hub", "pytest", "faiss", "pymilvus", "ray")
AT_ONCE = max(2, len(os.sched_getaffinity(0)))  # chains


def main(*documents: str) -> int:
    """Run the commands of documents (default: all)."""
    if found := [name for name in MORE_THAN_BASE if importlib.util.find_spec(name)]:
        print(f"{sys.prefix} has more than the base packages: {', '.join(found)}. Use `make base`.", file=sys.stderr)
        return 2
    if unknown := unlisted():
        print(f"No page of scripts/base_check/pages.py: {', '.join(unknown)}. Add one.", file=sys.stderr)
        return 1
    pages = [page for page in PAGES if not documents or page.name in documents]
    began = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix="check-base-"))
    os.environ |= {"OMP_NUM_THREADS": "1", "TMPDIR": str(scratch)}
    outcomes = walked(pages, scratch)
    report(outcomes, time.monotonic() - began)
    shutil.rmtree(scratch, ignore_errors=True)
    return int(any(not one.passed for one in outcomes))


def unlisted() -> list[str]:
    """Return the documents with commands but without a page. Korean ones repeat the English ones."""
    files = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    shown = [str(file.relative_to(ROOT)) for file in files if any(commands(file, "")) and ".ko." not in file.name]
    return [name for name in shown if name not in {page.name for page in PAGES}]


def walked(pages: list[Page], scratch: Path) -> list[Outcome]:
    child, addresses = stand_ins.start()
    try:
        warm_up()
        with ProcessPoolExecutor(AT_ONCE, multiprocessing.get_context("fork")) as pool:
            chains = [(page, chain) for page in pages for chain in ("", *page.chains)]  # the longest ones come first
            walks = [pool.submit(walk, page, chain, scratch, addresses) for page, chain in chains]
            return [outcome for done in as_completed(walks) for outcome in done.result()]
    finally:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)


def report(outcomes: list[Outcome], seconds: float) -> None:
    counts = Counter((one.what, one.result) for one in outcomes)
    print(f"{len(outcomes)} commands and hints in {seconds:.0f} s:")
    for (what, result), count in sorted(counts.items()):
        print(f"  {count:4}  {what}: {result}")
    for one in outcomes:
        if not one.passed:
            print(f"\nFAILED {one.place}: {one.what}: {one.result}\n  {one.command}\n{one.said}")


if __name__ == "__main__":
    sys.exit(called(main, sys.argv[1:], "check_base.py"))
