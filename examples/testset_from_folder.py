"""Draft a test set from a folder of texts, and compare two retrievers on it.

    export OPENAI_API_KEY=...
    python testset_from_folder.py FOLDER model=gpt-4o-mini
    python testset_from_folder.py FOLDER model=NAME llm.base_url=http://localhost:8000/v1     # your own server: no key

The folder may contain text, Markdown, HTML, PDF and HWPX files. The documents are sent to the model.
"""

import sys

import harness

folder, *model = sys.argv[1:]

# Cut the texts into documents.
prepared = harness.prepare(f"files={folder}/**/*")
print(f"{prepared.documents} documents of {prepared.files} files")

# Let the model write queries and quote their evidence, from 5 of the documents. "dry_run=true" would show the prompts
# and the number of tokens, and send nothing.
drafted = harness.testset_draft(*model, "limit=5")
print(drafted)
print("Read the queries before you trust a score: outputs/testset/queries.jsonl")

# Which retriever finds the evidence?
DATA = ("dataset=testset", "dataset.path=outputs/testset", "experiment_name=drafted")
bm25 = harness.run(*DATA, "retriever=bm25")
hybrid = harness.run(*DATA, "retriever=hybrid_lexical")
print(harness.compare(bm25, hybrid))
