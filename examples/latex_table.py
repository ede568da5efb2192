"""Print LaTeX tables that compare TREC runs: their scores and their differences.

    python latex_table.py qrels.txt theirs.run ours.run > table.tex
    python latex_table.py > table.tex                     # without files: two runs of the sample

The tables need the packages booktabs and graphicx. A dagger marks a difference that is more than chance.
"""

import shutil
import sys
from pathlib import Path

import harness


def sample_files():
    """Write the labels of the sample and two runs on it as TREC files. Return their names."""
    grades = harness.load_dataset("dataset=sample").qrels.grades
    labels = [f"{query} 0 {doc} {grade:g}\n" for query, found in grades.items() for doc, grade in found.items()]
    Path("qrels.txt").write_text("".join(labels), "utf-8")
    yield "qrels.txt"
    for retriever in ("bm25", "hybrid_lexical"):
        result = harness.run("dataset=sample", f"retriever={retriever}", "tracking=none")
        yield shutil.copyfile(result.folder / "run.trec", f"{retriever}.run")


qrels, *runs = sys.argv[1:] or sample_files()
measures = "metrics=[map,ndcg@10,recall@100]"
compared = harness.compare(*runs, "dataset=trec", f"dataset.qrels={qrels}", "metric=map", measures)
print(compared.table("latex"))
