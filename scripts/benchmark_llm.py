"""How well the client for language models keeps an endpoint busy, against the ideal.

    python scripts/benchmark_llm.py                     # 2,000 requests of 100 ms each, 16 at a time
    python scripts/benchmark_llm.py 500 0.02 4          # requests, seconds each, at a time

Starts the tests' chat server in a process of its own, which answers each request after a fixed time, and asks it
structured questions of some 2,000 characters. Every reply is logged, and the log is read again at the end.

- ideal: seconds if all the requests at a time were always under way: requests x seconds / at a time
- asking: seconds of `Chat.ask`, from the first request to the last logged reply, and as a multiple of the ideal
- bare: the same with threads that do nothing but send the same requests over open connections
- again: seconds of a second `Chat.ask`, which takes all replies from the log
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from harness.llm.chat import Chat, ChatModel, Prompt, Schema  # noqa: E402
from retrievers.base import Turn  # noqa: E402

NUMBER = Schema("number", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
TEXT = "회사는 1998년에 문을 열었고, 처음에는 농기계 부품을 만들었다. It moved to Busan in 2004. "


def main(count: int = 2_000, seconds: float = 0.1, parallel: int = 16) -> None:
    os.environ.pop("OPENAI_API_KEY", None)
    prompts = [Prompt((Turn("system", TEXT * 10), Turn("user", f"{i} {TEXT * 20}")), NUMBER) for i in range(count)]
    ideal = -(-count // parallel) * seconds
    command = [sys.executable, ROOT / "tests" / "support" / "chat_server.py", str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            model = ChatModel("tiny", server.stdout.readline().strip(), parallel=parallel)
            with tempfile.TemporaryDirectory() as folder:
                asking, again = (_asked(model, prompts, Path(folder)) for _ in range(2))
            bare = _bare(model, prompts)
        finally:
            server.kill()
    print(f"{count:,} requests of {seconds:g} s, {parallel} at a time")
    print(f"ideal   {ideal:7.2f} s")
    print(f"asking  {asking:7.2f} s  {asking / ideal:.2f} x ideal")
    print(f"bare    {bare:7.2f} s  {bare / ideal:.2f} x ideal")
    print(f"again   {again:7.2f} s")


def _asked(model: ChatModel, prompts: list[Prompt], folder: Path) -> float:
    began = time.perf_counter()
    replies = Chat(model, folder).ask(prompts, NUMBER.read, "benchmark")
    taken = time.perf_counter() - began
    assert all(
        reply.value["n"] == len(prompt.turns[-1].content) for reply, prompt in zip(replies, prompts, strict=True)
    )
    return taken


def _bare(model: ChatModel, prompts: list[Prompt]) -> float:
    from urllib3 import PoolManager

    bodies = [json.dumps(model.body(prompt)).encode() for prompt in prompts]
    pool = PoolManager(maxsize=model.parallel)
    headers = {"Content-Type": "application/json"}

    def send(body: bytes) -> int:
        return pool.request("POST", f"{model.base_url}/chat/completions", body=body, headers=headers).status

    began = time.perf_counter()
    with ThreadPoolExecutor(model.parallel) as threads:
        assert set(threads.map(send, bodies)) == {200}
    return time.perf_counter() - began


if __name__ == "__main__":
    main(*(kind(word) for kind, word in zip((int, float, int), sys.argv[1:], strict=False)))
