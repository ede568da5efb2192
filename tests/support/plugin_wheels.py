"""Wheels of plug-ins, made by hand and installed into a folder."""

import zipfile
from pathlib import Path

OVERLAP = '''
"""Ranks by the number of shared letters."""
import json
from retrievers.base import Ranking

class Overlap:
    recorded_as = "retriever/overlap"
    version = 1

    def __init__(self, least: int = 1) -> None:
        self._least = least

    def index(self, documents, folder):
        (folder / "texts.json").write_text(json.dumps({one.doc_id: one.indexed_text for one in documents}))
        self.load(folder)

    def load(self, folder):
        self._letters = {doc_id: set(text) for doc_id, text in json.loads((folder / "texts.json").read_text()).items()}

    def search(self, queries, k):
        scores = {}
        for query in queries:
            letters = set(query.text) - {" "}
            shared = {doc_id: float(len(letters & other)) for doc_id, other in self._letters.items()}
            scores[query.query_id] = {doc_id: score for doc_id, score in shared.items() if score >= self._least}
        return Ranking.from_scores(scores, k)
'''
YAML = "# Shared letters.\noverlap:\n  _target_: overlap_search.retriever.Overlap\n  least: 1  # letters\n"
FILES = {
    "overlap_search/__init__.py": "",
    "overlap_search/retriever.py": OVERLAP,
    "overlap_search/conf/retriever/overlap.yaml": YAML,
}
ENTRY = "overlap = overlap_search"


def wheel(folder: Path, files=None, name: str = "overlap-search", version: str = "1.0", entry: str = ENTRY) -> Path:
    """A wheel of these files, path -> text, by default of a retriever called `overlap`."""
    about = f"{name.replace('-', '_')}-{version}"
    meta = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": f"[retrieval_harness.components]\n{entry}\n",
    }
    content = dict(FILES if files is None else files) | {f"{about}.dist-info/{one}": text for one, text in meta.items()}
    record = "".join(f"{path},,\n" for path in [*content, f"{about}.dist-info/RECORD"])
    path = folder / f"{about}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        for one, text in content.items():
            file.writestr(one, text)
        file.writestr(f"{about}.dist-info/RECORD", record)
    return path


def unpack(path: Path, site: Path) -> None:
    """Install a wheel of nothing but Python and yaml files: unpacking it is all."""
    with zipfile.ZipFile(path) as file:
        file.extractall(site)


EVERY_KIND = """
from harness.data.contest import Contest
from harness.gates.gate import ScoreGate
from retrievers.combine.fusion import RRF
from retrievers.dense.lsa import LSA
from retrievers.dense.vectors import Flat
from retrievers.lexical.tokenize import Word
import numpy as np

class Source(Contest):
    recorded_as = "dataset/mine"

class Terms(Word):
    recorded_as = "tokenizer/mine"

class Vectors(LSA):
    recorded_as = "encoder/mine"

class Exact(Flat):
    recorded_as = "index/mine"

class Fuse(RRF):
    recorded_as = "fusion/mine"

class Threshold(ScoreGate):
    recorded_as = "gate/mine"

class Longest:
    recorded_as = "rerank/mine"

    def __init__(self, depth: int = 2) -> None:
        self.depth = depth

    def score(self, pairs):
        if pairs:
            yield np.arange(len(pairs)), np.array([float(len(text)) for _, text in pairs])
"""
EVERY_YAML = {
    "dataset": "_target_: every_kind.parts.Source\npath: toy\n",
    "tokenizer": "_target_: every_kind.parts.Terms\n",
    "encoder": "_target_: every_kind.parts.Vectors\ndimensions: 2\n",
    "index": "_target_: every_kind.parts.Exact\n",
    "fusion": "_target_: every_kind.parts.Fuse\nk: 10\nweights: {}\n",
    "gate": "_target_: every_kind.parts.Threshold\nthreshold: 0.01\nsource: bm25\n",
    "rerank": "_target_: every_kind.parts.Longest\ndepth: 2\n",
}


def every_kind() -> dict[str, str]:
    """The files of a plug-in with a choice called `mine` in every other group."""
    files = {"every_kind/__init__.py": "", "every_kind/parts.py": EVERY_KIND}
    return files | {f"every_kind/conf/{group}/mine.yaml": text for group, text in EVERY_YAML.items()}
