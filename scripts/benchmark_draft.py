"""Time `harness testset draft` against the least time that its requests can take.

    python scripts/benchmark_draft.py [DRAFTS] [SECONDS] [PARALLEL]     # default 2000 0.1 16

A model on this machine, in a process of its own, answers each request after SECONDS. The least time is
DRAFTS * SECONDS / PARALLEL. `requests` is the time from the first request to the last reply; `command` is all of the
command in this process, with reading, filters and writing; `repeat` is the same again, without requests.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUPPORT = ROOT / "tests" / "support"
sys.path[:0] = [str(ROOT), str(SUPPORT)]

from documents_folders import documents_folder, pieces  # noqa: E402

from harness.cli import call  # noqa: E402
from harness.llm.chat import Chat  # noqa: E402

WORDS = ["testset draft", "testset=ts", "documents=docs", "model=stand-in", "kinds=[fact]", "questions=1", "limit=null"]


def main() -> None:
    given = sys.argv[1:]
    drafts, seconds, parallel = (
        int((given or ["2000"])[0]),
        float((given[1:] or ["0.1"])[0]),
        int((given[2:] or [16])[0]),
    )
    server = subprocess.Popen(
        [sys.executable, str(SUPPORT / "scripted_drafts.py"), str(seconds)], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    url = server.stdout.readline().strip()
    asking = []
    ask = Chat.ask

    def timed(self, *arguments):  # type: ignore[no-untyped-def]
        began = time.perf_counter()
        found = ask(self, *arguments)
        asking.append(time.perf_counter() - began)
        return found

    Chat.ask = timed  # type: ignore[method-assign]
    try:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            size = 60
            text = "".join(
                f"{number}호 접시는 {number % 400 + 1600}년에 나왔다. ".ljust(size) for number in range(drafts)
            )
            documents_folder(Path("docs"), {"dishes.txt": text}, lambda text: pieces(text, size))
            words = [*WORDS, f"llm.base_url={url}", f"llm.runtime.parallel={parallel}"]
            whole = []
            for _ in range(2):
                began = time.perf_counter()
                with contextlib.redirect_stdout(io.StringIO()):
                    assert call(WORDS[0], words[1:]) == 0
                whole.append(time.perf_counter() - began)
            counts = urllib.request.urlopen(f"{url}/counts").read()
    finally:
        server.kill()
    ideal = drafts * seconds / parallel
    assert counts.count(b":") >= drafts
    print("| drafts | least, s | requests, s | times the least | command, s | repeat, s |")
    print("|---:|---:|---:|---:|---:|---:|")
    print(f"| {drafts:,} | {ideal:.1f} | {asking[0]:.1f} | {asking[0] / ideal:.2f} | {whole[0]:.1f} | {whole[1]:.1f} |")


if __name__ == "__main__":
    main()
