"""Frozen test sets for tests: made as the command makes them, and changed as nobody should."""

import hashlib
import json
from pathlib import Path

from judged_sets import judged_set

from harness.data.frozen import FROZEN, manifest_digest
from harness.testset.freeze.freezing import Material, snapshot, write_frozen

MODEL, KIM = "llm:tiny#0123abcd", "human:kim"
CHECKED = 6  # queries


def judged(path, topics=16, checked=CHECKED):
    """All pairs judged by a model, and the first queries by a person who is stricter: what nearly repeats the answer is
    of no use to them."""
    made = judged_set(path, topics)
    made.pool()
    made.judge(MODEL)
    strata = {query_id: made.kinds[query_id] for query_id in made.query_ids}
    drawn = made.query_ids[:checked]
    (made.folder / "audit.json").write_text(json.dumps({"seed": 0, "strata": strata, "drawn": drawn, "twice": []}))

    def strict(query_id, doc_id):
        repeated = doc_id == made.doc_ids[made.query_ids.index(query_id)][3]
        return 1 if repeated else made.truth(query_id, doc_id)

    made.judge(KIM, drawn, strict, needs=True, sample="audit", pi=0.5)
    return made


def frozen(folder, version=1):
    """The folder of a version of a judged test set, written."""
    output = folder / f"v{version}"
    write_frozen(output, *snapshot(Material.read(folder, None, 2), version, None, output))
    return output


def sealed(folder: Path):
    """Make a frozen test set that was edited look as if it had been frozen so."""
    path = folder / FROZEN
    manifest = json.loads(path.read_bytes())
    manifest["files"] = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in manifest["files"]}
    path.write_text(json.dumps(manifest | {"sha256": manifest_digest(manifest)}))
