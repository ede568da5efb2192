"""Judging that is killed again and again: what was paid for is kept, and no judgement is lost or doubled."""

import os
import random
import signal
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

KILLS, PARALLEL, TOPICS = 4, 4, 12


def _command(folder, url, *words):
    words = [
        "testset=ts",
        "model=tiny",
        f"llm.base_url={url}",
        f"llm.runtime.parallel={PARALLEL}",
        "limit=null",
        *words,
    ]
    code = "from harness.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "testset", "judge", *words],
        cwd=folder, env=os.environ | {"HARNESS_CACHE": str(folder / "cache")}, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )  # fmt: skip


def _finish(process):
    _, err = process.communicate()
    assert process.returncode == 0, err.decode()


def _said(made):
    return [replace(one, at="") for one in JudgementLog(made.folder).read()]


@pytest.mark.slow
def test_kills_repeat_at_most_what_was_under_way(tmp_path):
    made = {}
    for name in ("disturbed", "undisturbed"):
        (tmp_path / name).mkdir()
        made[name] = judged_set(tmp_path / name, TOPICS)
        pool = made[name].pool()
    count = sum(made["disturbed"].kinds[pair.query_id] != "none" for pair in pool.pairs)
    chance = random.Random(17)
    folder = tmp_path / "disturbed"
    with ChatServer(model=judge, delay=0.03, counted=True) as server:
        for _ in range(KILLS):
            before, process = len(server.asked), _command(folder, server.url)
            wanted = before + chance.randint(1, count // KILLS)
            while process.poll() is None and len(server.asked) < wanted:
                time.sleep(0.005)
            time.sleep(chance.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
            process.communicate()
        both = [_command(folder, server.url) for _ in range(2)]  # the second waits for the first
        for process in both:
            _finish(process)
        asked = Counter(server.texts)
        assert asked.total() - len(asked) <= KILLS * PARALLEL
        said = _said(made["disturbed"])
        assert len({one.pair for one in said}) == len(said) == count
        path = made["disturbed"].folder / "judgements.jsonl"
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])  # killed while it wrote
        _finish(_command(folder, server.url))
        assert _said(made["disturbed"]) == said
        assert len(server.asked) == asked.total()
        _finish(_command(tmp_path / "undisturbed", server.url))
        assert _said(made["undisturbed"]) == said
