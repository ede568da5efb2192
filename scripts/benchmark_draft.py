"""Time `harness testset draft` and `harness testset judge` against the least time that their requests can take.

    python scripts/benchmark_draft.py [COUNT] [SECONDS] [PARALLEL]     # default 2000 0.1 16

A model on this machine, in a process of its own, answers each request after SECONDS. COUNT drafts are asked for, and
COUNT pairs are judged, with some requests more for hidden controls. The least time is requests * SECONDS / PARALLEL.
`asking` is the time from the first request to the last reply; `command` is all of the command in this process, with
reading, filters and writing; `repeat` is the same again, without requests.
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
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUPPORT = ROOT / "tests" / "support"
sys.path[:0] = [str(ROOT), str(SUPPORT)]

from documents_folders import documents_folder, pieces  # noqa: E402
from judged_sets import judged_set  # noqa: E402

from harness.cli import call  # noqa: E402
from harness.llm.chat import Chat  # noqa: E402
from harness.testset import pool as pools  # noqa: E402

SIZE = 60  # characters of a document to draft from
PAIRS = 5  # at least as many are pooled for each topic on average


def main() -> None:
    given = sys.argv[1:]
    count = int((given or ["2000"])[0])
    seconds, parallel = float((given[1:] or ["0.1"])[0]), int((given[2:] or ["16"])[0])
    print("| command | requests | least, s | asking, s | times the least | command, s | repeat, s |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        text = "".join(f"{number}호 접시는 {number % 400 + 1600}년에 나왔다. ".ljust(SIZE) for number in range(count))
        documents_folder(Path("docs"), {"dishes.txt": text}, lambda text: pieces(text, SIZE))
        words = ["documents=docs", "kinds=[fact]", "questions=1", "limit=null"]
        _measure("testset draft", "scripted_drafts.py", words, seconds, parallel)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        made = judged_set(Path(), -(-count // PAIRS))
        pool = made.pool()
        pairs = [pair for pair in pool.pairs if made.kinds[pair.query_id] != "none"][:count]
        assert len(pairs) == count
        pools.write(made.folder, replace(pool, pairs=tuple(pairs)))
        _measure("testset judge", "scripted_judge.py", ["limit=null"], seconds, parallel)


def _measure(command: str, model: str, words: Sequence[str], seconds: float, parallel: int) -> None:
    """Call a command twice and print what it took."""
    asking: list[float] = []
    ask = Chat.ask

    def timed(self, *arguments):  # type: ignore[no-untyped-def]
        began = time.perf_counter()
        found = ask(self, *arguments)
        asking.append(time.perf_counter() - began)
        return found

    arguments = [sys.executable, str(SUPPORT / model), str(seconds)]
    server = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    Chat.ask = timed  # type: ignore[method-assign]
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        words = ["testset=ts", "model=stand-in", f"llm.base_url={url}", f"llm.runtime.parallel={parallel}", *words]
        whole = []
        for _ in range(2):
            began = time.perf_counter()
            with contextlib.redirect_stdout(io.StringIO()):
                assert call(command, words) == 0
            whole.append(time.perf_counter() - began)
        sent = urllib.request.urlopen(f"{url}/counts").read().count(b'": ')
    finally:
        server.kill()
        Chat.ask = ask  # type: ignore[method-assign]
    least = sent * seconds / parallel
    print(
        f"| {command} | {sent:,} | {least:.1f} | {asking[0]:.1f} | {asking[0] / least:.2f} "
        f"| {whole[0]:.1f} | {whole[1]:.1f} |"
    )


if __name__ == "__main__":
    main()
