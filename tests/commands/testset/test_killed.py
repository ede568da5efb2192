"""Drafting that is killed again and again: what was paid for is kept, and the result is the same."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest
from chat_server import ChatServer
from documents_folders import documents_folder, pieces
from scripted_drafts import draft

KILLS, PARALLEL, LIMIT = 6, 4, 12
KINDS = 5


def _command(folder, url):
    words = ["testset=ts", "documents=../docs", "model=tiny", f"limit={LIMIT}", f"llm.base_url={url}"]
    code = "from harness.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "testset", "draft", *words, f"llm.runtime.parallel={PARALLEL}"],
        cwd=folder, env=os.environ | {"HARNESS_CACHE": str(folder / "cache")}, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )  # fmt: skip


def _finish(folder, url):
    """Run to the end; name -> content of the test set."""
    process = _command(folder, url)
    _, err = process.communicate()
    assert process.returncode == 0, err
    return {path.name: path.read_bytes() for path in (folder / "ts").iterdir()}


@pytest.mark.slow
def test_kills_repeat_at_most_what_was_under_way(tmp_path):
    text = "".join(f"다온 도자기의 {number}번째 접시는 {1900 + number}년에 나왔다. " for number in range(LIMIT))
    documents_folder(tmp_path / "docs", {"dishes.txt": text}, lambda text: pieces(text, len(text) // LIMIT))
    chance = random.Random(16)
    with ChatServer(model=draft, delay=0.05, counted=True) as server:
        for name in ("disturbed", "undisturbed"):
            (tmp_path / name).mkdir()
        for _ in range(KILLS):
            before, process = len(server.asked), _command(tmp_path / "disturbed", server.url)
            wanted = before + chance.randint(1, 2 * LIMIT * KINDS // KILLS - PARALLEL)
            while process.poll() is None and len(server.asked) < wanted:
                time.sleep(0.005)
            time.sleep(chance.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
            process.communicate()
        disturbed = _finish(tmp_path / "disturbed", server.url)
        asked = Counter(server.texts)
        assert len(asked) == LIMIT * KINDS
        assert asked.total() - len(asked) <= KILLS * PARALLEL
        assert _finish(tmp_path / "disturbed", server.url) == disturbed
        assert len(server.asked) == asked.total()
        assert _finish(tmp_path / "undisturbed", server.url) == disturbed
