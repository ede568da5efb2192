"""Judging that is killed: what was paid for is kept, and the result is the same."""

import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace

import pytest
from chat_server import ChatServer
from judged_sets import judged_set
from scripted_judge import judge

from harness.testset.judge.judgements import JudgementLog

PARALLEL, TOPICS = 4, 8


def result(folder):
    """All judgements, but when they were made."""
    said = [replace(one, at="") for one in JudgementLog(folder / "ts").read()]
    assert len({one.pair for one in said}) == len(said)
    return said


def started(folder, url):
    words = ["testset=ts", "limit=null", "model=tiny", f"llm.base_url={url}", f"llm.runtime.parallel={PARALLEL}"]
    return subprocess.Popen(
        [sys.executable, "-c", "from harness.cli import main; main()", "testset", "judge", *words],
        cwd=folder, env=os.environ | {"HARNESS_CACHE": str(folder / "cache")}, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(*processes):
    for process in processes:
        _, err = process.communicate()
        assert process.returncode == 0, err.decode()


@pytest.mark.slow
def test_kills_repeat_at_most_what_was_under_way(tmp_path):
    folder, undisturbed = tmp_path / "disturbed", tmp_path / "undisturbed"
    for one in (folder, undisturbed):
        judged_set(one, TOPICS).pool()
    with ChatServer(model=judge, delay=0.03, counted=True) as server:
        process = started(folder, server.url)
        while process.poll() is None and len(server.asked) < 13:
            time.sleep(0.005)
        process.kill()
        process.communicate()
        finish(*(started(folder, server.url) for _ in range(2)))  # the second waits for the first
        asked, found = Counter(server.texts), result(folder)
        assert asked.total() - len(asked) <= PARALLEL
        path = JudgementLog(folder / "ts").path
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])  # killed while it wrote
        finish(started(folder, server.url))
        assert len(server.asked) == asked.total()
        assert result(folder) == found
        finish(started(undisturbed, server.url))
        assert result(undisturbed) == found
