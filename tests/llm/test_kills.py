"""Asking through kills: what was paid for is paid for once."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

PARALLEL, PROMPTS, KILLS = 8, 600, 20
SERVER = Path(__file__).resolve().parents[1] / "support" / "chat_server.py"
ASK = f"""
import json, sys
from pathlib import Path
from harness.llm.chat import ChatModel, Prompt, Schema
from harness.storage.cache import Cache
from harness.pipeline.session import chat_for
from retrievers.base import Turn

folder, url = sys.argv[1:]
number = Schema("number", {{"type": "object", "properties": {{"n": {{"type": "integer"}}}}, "required": ["n"]}})
prompts = [Prompt((Turn("user", f"{{i}} " + "글" * (i % 7)),), number) for i in range({PROMPTS})]
chat = chat_for(ChatModel("tiny", url, parallel={PARALLEL}), Cache(Path(folder)), "test")
replies = chat.ask(prompts, number.read, "test")
print(json.dumps([chat.spent.requests, [reply.value["n"] for reply in replies]]))
"""


@pytest.mark.slow
def test_a_kill_costs_at_most_what_was_under_way(tmp_path):
    """20 processes are killed at random moments; one that is left alone gives the same replies, and another asks for
    nothing."""
    drawn = random.Random(0)
    with subprocess.Popen([sys.executable, SERVER, "0.05"], stdout=subprocess.PIPE, text=True) as server:
        try:
            url = server.stdout.readline().strip()
            kills = 0
            while kills < KILLS:
                process = _ask(tmp_path, url)
                before = _asked(url)
                while sum(_asked(url).values()) == sum(before.values()) and process.poll() is None:
                    time.sleep(0.01)  # it has begun to ask
                time.sleep(drawn.uniform(0, 0.15))
                process.send_signal(signal.SIGKILL)
                process.wait()
                kills += 1
            asked = [json.loads(_ask(tmp_path, url).communicate()[0]) for _ in range(2)]
            counts = _asked(url)
        finally:
            server.kill()
    assert asked[0][1] == asked[1][1] == [len(f"{i} ") + i % 7 for i in range(PROMPTS)]
    assert asked[1][0] == 0
    assert asked[0][0] > 0, "the kills came before the end"
    assert len(counts) == PROMPTS
    assert sum(counts.values()) - PROMPTS <= KILLS * PARALLEL


def _ask(folder, url):
    environment = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
    return subprocess.Popen([sys.executable, "-c", ASK, folder, url], stdout=subprocess.PIPE, text=True,
                            stderr=subprocess.DEVNULL, env=environment)  # fmt: skip


def _asked(url):
    """Text -> how often the server was asked."""
    with urlopen(url) as response:
        return json.load(response)
