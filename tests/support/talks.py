"""Conversations about the toy documents, and a model that is asked to write something for each."""

import json
import shutil
from pathlib import Path

# A conversation whose last turn needs the first, a plain question, a greeting, and the plain question again.
TURNS = {
    "7": ["달은 매일 모양이 같아?", "아니요, 변합니다.", "그건 왜 그래?"],
    "3": ["물은 몇 도에서 끓어?"],
    "5": ["안녕"],
    "9": ["물은 몇 도에서 끓어?"],
}
STANDALONE = {
    "그건 왜 그래?": "달의  모양이\n변하는 까닭",
    "물은 몇 도에서 끓어?": "물은 몇 도에서 끓어?",
    "안녕": "안녕",
}


def write_talk(toy, folder):
    """The toy documents with these conversations, in a new folder."""
    shutil.copytree(toy, folder)
    roles = ("user", "assistant", "user")
    rows = [
        {
            "eval_id": int(one),
            "msg": [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)],
        }
        for one, texts in TURNS.items()
    ]
    labels = {"7": {"d3": 2, "d1": 1}, "3": ["d2"], "5": [], "9": ["d2"]}
    lines = [{"eval_id": int(one), "relevant": relevant} for one, relevant in labels.items()]
    for name, content in {"eval": rows, "qrels": lines}.items():
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in content)
        (folder / f"{name}.jsonl").write_text(text, "utf-8")
    return folder


def last_turn(asked):
    """The last user turn of the conversation at the end of a prompt."""
    return asked.rpartition("\nuser: ")[2]


def rewritten(asked, time=1):
    return json.dumps({"query": STANDALONE[last_turn(asked)]}, ensure_ascii=False)


def llm(server):
    return ("llm.model=tiny", f"llm.base_url={server.url}")


def rows(done):
    text = Path(done.json["files"]["predictions"]).read_text("utf-8")
    return {row["eval_id"]: row for row in map(json.loads, text.splitlines())}
