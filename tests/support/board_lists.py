"""Lists, texts and signals of made-up boards: what `tests/support/boards.py` has values of."""

import numpy as np

from harness.analysis.board.lists import Retrieved, Returned
from harness.analysis.board.queries import DETAILED, Collected, ReadAgain
from harness.data.dataset import Dataset
from harness.data.qrels import Qrels
from harness.reports.gate_view import SignalRule
from retrievers.base import Document, Query, Turn

TOPICS = [
    ("달의 위상", "달은 스스로 빛나지 않고 햇빛을 되비춘다. 지구를 도는 동안 밝은 면이 보이는 넓이가 달라진다.",
     "달의 모양은 왜 매일 달라져?"),
    ("물의 끓는점", "물은 기압이 낮을수록 낮은 온도에서 끓는다. 높은 산에서는 밥이 설익기 쉽다.",
     "높은 산에서 물은 몇 도에서 끓어?"),
    ("식물의 광합성", "식물은 빛을 받아 물과 이산화탄소로 당을 만들고 산소를 내보낸다.",
     "식물이 산소를 만드는 과정을 알려줘"),
    ("Tides", "The Moon pulls the sea towards it, and the sea rises twice a day on most coasts.",
     "Why does the sea rise twice a day?"),
    ("DNA", "DNA stores what a cell inherits; its two strands pair base by base.",
     "How do the two strands of DNA pair?"),
    ("Erosion", "Rivers carry sand and stones to the sea and deepen their valleys.", "How do rivers deepen valleys?"),
]  # fmt: skip
DOCUMENTS = 120


def made_dataset(runs, documents=DOCUMENTS):
    """Documents about a few topics, and for each query of a board a question; every fifth continues a conversation."""
    texts = []
    for number in range(documents):
        title, text, _ = TOPICS[number % len(TOPICS)]
        texts.append(Document(f"d{number:03}", f"{text} ({number // len(TOPICS) + 1})", title))
    queries, grades = [], {}
    for row, query_id in enumerate(runs.query_ids):
        question = Turn("user", TOPICS[row % len(TOPICS)][2])
        before = (Turn("user", "과학 이야기를 하자."), Turn("assistant", "좋아요, 무엇이 궁금한가요?"))
        queries.append(Query(query_id, (*before, question) if runs.multi_turn[row] else (question,)))
        if runs.needs[row]:
            grades[query_id] = {f"d{(row + 12 * step) % DOCUMENTS:03}": 2.0 - step for step in range(2)}
        else:
            grades[query_id] = {}
    return Dataset("made", tuple(texts), tuple(queries), Qrels(grades))


def made_details(runs, dataset=None):
    """What a page shows of a made-up board; the three best runs are logged in full, with a gate."""
    dataset = dataset or made_dataset(runs)
    collected = Collected(runs, [ReadAgain(dataset, dataset.qrels.grades)])
    gates = [None] * len(runs.runs)
    for place in range(len(runs.runs)):
        full = place < min(3, DETAILED)
        behind = made_lists(runs, dataset, place)
        returned = {}
        for row, query in enumerate(dataset.queries):
            ranked = behind.candidates[query.query_id]
            count = 0 if runs.losses[place, row] == 2 else 3
            docs = tuple(ranked)[:count]
            returned[query.query_id] = Returned(count, docs, tuple(ranked[one] for one in docs), query.text)
        collected.add(place, 0, returned, behind if full else None)
        if full:
            gates[place] = SignalRule("bm25 top_score", (3, 0), (5.5,))
    return collected.details(gates, [])


def made_lists(runs, dataset, place):
    """Lists of ten documents, the first relevant one as high as the run's value on the query says."""
    candidates, signals = {}, {}
    rng = np.random.default_rng(place)
    for row, query in enumerate(dataset.queries):
        relevant = list(dataset.qrels.grades[query.query_id])
        others = [f"d{number:03}" for number in rng.choice(DOCUMENTS, 12, replace=False)]
        docs = [one for one in others if one not in relevant]
        lost = round(6 * (1 - np.nan_to_num(runs.values[place, row])))
        for step, one in enumerate(relevant):
            docs.insert(lost + step, one)
        scores = np.sort(rng.gamma(4, 3, 10))[::-1]
        candidates[query.query_id] = dict(zip(docs, scores.tolist(), strict=False))
        signals[query.query_id] = float(scores[0])
    return Retrieved(candidates, signals)
