"""Score a LangChain retriever with your own labels.

    python langchain_retriever.py

`Shortest` has what a LangChain retriever has: `invoke(text)` returns documents with `page_content` and `metadata`. So
the example needs no LangChain. In place of `Shortest()`, put your own retriever, such as that of a vector store whose
documents have metadata={"doc_id": ...}:

    retriever = store.as_retriever(search_kwargs={"k": 100})
"""

from dataclasses import dataclass

import harness
from retrievers.external import adapters

DATA = ("dataset=sample", "experiment_name=langchain")  # your files: "dataset=contest", "dataset.path=data"
DATASET = harness.load_dataset(*DATA)


@dataclass
class Found:
    page_content: str
    metadata: dict


class Shortest:
    """Find the documents that contain a word of the query, the shortest documents first."""

    def invoke(self, text):
        matching = [one for one in DATASET.documents if any(word in one.text for word in text.split())]
        return [Found(one.text, {"doc_id": one.doc_id}) for one in sorted(matching, key=lambda one: len(one.text))]


retriever = Shortest()
search = adapters.langchain(retriever, key="doc_id")  # search(texts, k) -> pairs (doc_id, score) for each text

if __name__ == "__main__":
    # Score the function. Nothing is logged.
    print(harness.evaluate(search, DATASET, ["ndcg@10", "recall@100"]))

    # Or log it as a run, to compare it with other retrievers. A config names the function and its module.
    function = "retriever.python.function=langchain_retriever:search"
    own = harness.run(*DATA, "run_name=shortest", "retriever=python", function, "plugins.allow=[langchain_retriever]")
    print(harness.compare(harness.run(*DATA, "run_name=bm25"), own, "metric=ndcg@10"))
