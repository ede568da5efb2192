"""Drafting and judging that are killed: what was paid for is kept, and the result is the same."""

import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace

import pytest
from chat_server import ChatServer
from documents_folders import documents_folder, pieces
from judged_sets import judged_set
from scripted_drafts import draft
from scripted_judge import judge

from harness.testset.judge.judgements import JudgementLog

KILLS, PARALLEL, LIMIT = 2, 4, 10


def drafting(folder):
    text = "".join(f"다온 도자기의 {number}번째 접시는 {1900 + number}년에 나왔다. " for number in range(LIMIT))
    documents_folder(folder / "docs", {"dishes.txt": text}, lambda text: pieces(text, len(text) // LIMIT))
    return ["draft", "documents=docs", f"limit={LIMIT}"]


def judging(folder):
    judged_set(folder, LIMIT).pool()
    return ["judge", "limit=null"]


def result(folder):
    """The files of a test set; of judgements, all but when they were made."""
    files = {path.name: path.read_bytes() for path in (folder / "ts").iterdir() if path.name[:5] != "judge"}
    said = [replace(one, at="") for one in JudgementLog(folder / "ts").read()]
    assert len({one.pair for one in said}) == len(said)
    return {name: content for name, content in files.items() if name[0] != "."}, said


def started(folder, url, words):
    command, *words = [*words, "testset=ts", "model=tiny", f"llm.base_url={url}", f"llm.runtime.parallel={PARALLEL}"]
    return subprocess.Popen(
        [sys.executable, "-c", "from harness.cli import main; main()", "testset", command, *words],
        cwd=folder, env=os.environ | {"HARNESS_CACHE": str(folder / "cache")}, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(*processes):
    for process in processes:
        _, err = process.communicate()
        assert process.returncode == 0, err.decode()


@pytest.mark.slow
@pytest.mark.parametrize(("made", "model"), [(drafting, draft), (judging, judge)])
def test_kills_repeat_at_most_what_was_under_way(tmp_path, made, model):
    folder, undisturbed = tmp_path / "disturbed", tmp_path / "undisturbed"
    for one in (folder, undisturbed):
        one.mkdir()
        words = made(one)
    with ChatServer(model=model, delay=0.03, counted=True) as server:
        for _ in range(KILLS):
            wanted, process = len(server.asked) + 13, started(folder, server.url, words)
            while process.poll() is None and len(server.asked) < wanted:
                time.sleep(0.005)
            process.kill()
            process.communicate()
        finish(*(started(folder, server.url, words) for _ in range(2)))  # the second waits for the first
        asked, found = Counter(server.texts), result(folder)
        assert asked.total() - len(asked) <= KILLS * PARALLEL
        if made is judging:  # killed while it wrote
            path = JudgementLog(folder / "ts").path
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        finish(started(folder, server.url, words))
        assert len(server.asked) == asked.total()
        assert result(folder) == found
        finish(started(undisturbed, server.url, words))
        assert result(undisturbed) == found
