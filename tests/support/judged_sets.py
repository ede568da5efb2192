"""A small judged test set for tests: documents, queries of all kinds, a pool of two invented runs, and judgements.

    made = judged_set(tmp_path, topics=12)
    made.pool()
    made.judge("llm:judge#0123abcd")
    made.judge("human:kim", queries=made.query_ids[:6], sample="audit", pi=0.5)

Topic n is a text of four sentences, which are one document each. Its query asks for the second; the fourth of every
third topic nearly repeats it. What `truth` says of a pair is 3 for the document that answers, and for one that nearly
repeats it, 1 for others of the same text and 0 for the rest.
"""

import hashlib
import json
import shutil
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from documents_folders import documents_folder, folder_of_testset, lines, query, quoted

from harness.data.documents_folder import DocumentsFolder
from harness.data.testset import read_queries
from harness.testset.judge.judgements import Judgement, JudgementLog, text_digest
from harness.testset.pool import pool as pools
from harness.testset.pool.pool import About, DocumentsPlace, Pool, PooledPair, PooledRun
from retrievers.base import Query

KINDS = ("fact", "search", "conversation", "unanswerable", "fact", "search", "none", "conversation")
RUNS = {"a" * 32: "bm25-invented", "b" * 32: "dense-invented"}  # run id -> name
AT = "2026-11-22T09:30:00Z"
PER_TOPIC = 4  # documents


def sentences(topic):
    """The four documents of a topic, invented."""
    name, year = f"가람{topic}호", 1900 + topic % 100
    answer = f"{name}의 첫 항해는 {year}년 봄에 있었다. "
    again = topic % 3 == 0
    return (
        f"{name}는 동해를 오가는 작은 배이다. ",
        answer,
        f"The ship {topic} carries salt, rope and letters to the islands. ",
        answer.replace("봄에", "봄에도") if again else f"{name}의 돛은 {topic + 3}번 기워졌다. ",
    )


def question(topic):
    """(kind, turns) of a topic's query."""
    kind, name = KINDS[topic % len(KINDS)], f"가람{topic}호"
    texts = {
        "fact": [f"{name}는 언제 처음 바다에 나갔나요?"],
        "search": [f"{name} 첫 항해 연도"],
        "conversation": [f"{name}를 알아?", "작은 배입니다.", "언제 처음 나갔지?"],
        "none": [f"고마워, {topic}번째 인사야"],
        "unanswerable": [f"{name}의 선장은 누구였나요?"],
    }[kind]
    return kind, [{"role": "user" if n % 2 == 0 else "assistant", "content": text} for n, text in enumerate(texts)]


def judged_set(path, topics=8):
    """Documents in path/docs and a finished test set in path/ts, with one query per topic; no pool yet."""
    texts = {f"{topic:05}.txt": "".join(sentences(topic)) for topic in range(topics)}
    by_text = {text: topic for topic, text in enumerate(texts.values())}

    def spans(text):
        found, start = [], 0
        for one in sentences(by_text[text]):
            found.append((start, start + len(one)))
            start += len(one)
        return found

    documents_folder(path / "docs", texts, spans)
    ids = _ids(path / "docs")
    near = [{"a": ids[topic][1], "b": ids[topic][3], "similarity": 0.9} for topic in range(0, topics, 3)]
    (path / "docs" / "near_duplicates.jsonl").write_text(lines(near))
    rows = []
    for topic, text in enumerate(texts.values()):
        kind, turns = question(topic)
        evidence = () if kind in ("none", "unanswerable") else [quoted(text, sentences(topic)[1].strip())]
        rows.append(query(f"q{topic:05}", "", evidence, kind) | {"msg": turns})
    folder_of_testset(path / "ts", rows, "../docs")
    return JudgedSet(path / "ts", path / "docs")


def copied_set(path, to):
    """Return a copy of the folder `path` of a judged set, in the folder `to`."""
    shutil.copytree(path, to, dirs_exist_ok=True)
    return JudgedSet(to / "ts", to / "docs")


def _ids(documents):
    """Per topic, the ids of its four documents."""
    rows = [json.loads(line) for line in (documents / "documents.jsonl").read_text().splitlines()]
    ids = [row["docid"] for row in rows]
    return [ids[first : first + PER_TOPIC] for first in range(0, len(ids), PER_TOPIC)]


@dataclass(frozen=True)
class JudgedSet:
    """folder: the test set. documents: the folder of its documents."""

    folder: Path
    documents: Path

    @cached_property
    def queries(self) -> dict[str, Query]:
        return {one.query.query_id: one.query for one in read_queries(self.folder)}

    @cached_property
    def kinds(self) -> dict[str, str]:
        return {one.query.query_id: one.kind for one in read_queries(self.folder)}

    @property
    def query_ids(self) -> list[str]:
        return list(self.queries)

    @cached_property
    def doc_ids(self) -> list[list[str]]:
        """Per topic, the ids of its four documents: introduction, answer, other, other or nearly the answer again."""
        return _ids(self.documents)

    def truth(self, query_id, doc_id) -> int:
        """The grade of a pair; see above. Nothing answers queries without evidence."""
        topic = self.query_ids.index(query_id)
        own = self.doc_ids[topic]
        if self.kinds[query_id] == "none" or doc_id not in own:
            return 0
        if self.kinds[query_id] == "unanswerable":
            return 1
        return 3 if doc_id == own[1] or (doc_id == own[3] and topic % 3 == 0) else 1

    def lists(self, depth=6) -> dict[str, dict[str, list[str]]]:
        """run id -> query_id -> its documents. The first run begins with the topic's own documents, the second with
        those of the next topic; both go on at a place that depends on the query."""
        flat = [doc_id for ids in self.doc_ids for doc_id in ids]
        found = {run_id: {} for run_id in RUNS}
        for topic, query_id in enumerate(self.query_ids):
            for shift, run_id in enumerate(RUNS):
                near = self.doc_ids[(topic + shift) % len(self.doc_ids)]
                first = int(hashlib.sha256(f"{query_id} {run_id}".encode()).hexdigest(), 16) % len(flat)
                order = dict.fromkeys([near[1], near[0], near[3], *flat[first:], *flat[:first]])
                found[run_id][query_id] = list(order)[:depth]
        return found

    def pool(self, depth=3, sample=1) -> Pool:
        """Write and return the pool: the first `depth` of both runs, seeds, near-duplicates and `sample` below."""
        pairs = {}
        lists = self.lists(depth + 3)
        for topic, query_id in enumerate(self.query_ids):
            for run_id in RUNS:
                for rank, doc_id in enumerate(lists[run_id][query_id][:depth], start=1):
                    pair = pairs.setdefault((query_id, doc_id), PooledPair(query_id, doc_id))
                    pairs[query_id, doc_id] = replace(pair, ranks={**pair.ranks, run_id: rank})
            if self.kinds[query_id] not in ("none", "unanswerable"):
                _, answer, _, last = self.doc_ids[topic]
                pair = pairs.setdefault((query_id, answer), PooledPair(query_id, answer))
                pairs[query_id, answer] = replace(pair, seed=True)
                if topic % 3 == 0:
                    pair = pairs.setdefault((query_id, last), PooledPair(query_id, last))
                    pairs[query_id, last] = replace(pair, near_duplicate=True)
            below = {doc_id for run_id in RUNS for doc_id in lists[run_id][query_id][depth:]}
            below = sorted(doc_id for doc_id in below if (query_id, doc_id) not in pairs)
            for doc_id in below[:sample]:
                pairs[query_id, doc_id] = PooledPair(query_id, doc_id, pi=min(1.0, sample / len(below)))
        about = About(
            documents=DocumentsPlace("../docs", DocumentsFolder(self.documents).fingerprint),
            runs={run_id: PooledRun(name, depth) for run_id, name in RUNS.items()},
            sample=sample,
            queries={query_id: text_digest(query) for query_id, query in self.queries.items()},
        )
        made = Pool(tuple(pairs[key] for key in sorted(pairs)), about)
        pools.write_pool(self.folder, made)
        return made

    def judge(self, by, queries=None, grade=None, needs=False, **more) -> list[Judgement]:
        """Append and return what a judge says of all pooled pairs of these queries (None: those that need retrieval).

        grade: (query_id, doc_id) -> grade; None: the truth. needs: whether to say of each query whether it needs
        retrieval as well. more: of Judgement, such as sample="audit", pi=0.5, round=2.
        """
        found = []
        pool = pools.read_pool(self.folder).by_query
        for query_id in [one for one in self.query_ids if self.kinds[one] != "none"] if queries is None else queries:
            common = {"query_id": query_id, "text": text_digest(self.queries[query_id]), "by": by, "at": AT, **more}
            if needs:
                found.append(Judgement(doc_id=None, grade=None, needs=self.kinds[query_id] != "none", **common))
            for pair in pool[query_id]:
                said = (grade or self.truth)(query_id, pair.doc_id)
                found.append(Judgement(doc_id=pair.doc_id, grade=said, **common))
        JudgementLog(self.folder).append(found)
        return found
