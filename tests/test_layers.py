"""Who may import whom, walked over the sources."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [*sorted((ROOT / "harness").glob("*.py")), *sorted((ROOT / "retrievers").glob("*.py"))]
LEAVES = {
    "config",
    "keys",
    "gate",
    "judged",
    "lines",
    "metrics",
    "plots",
    "predictions",
    "progress",
    "readers",
    "scores",
}
LEAVES |= {"errors", "mlflow_store", "stats", "store", "study", "sweep_plots"}
LEAVES |= {
    "calibrate",
    "proof",
    "mlflow_spans",
    "compare_page",
    "compare_plots",
    "fitted",
    "llm",
    "optimism",
    "paired",
    "signals",
    "tallies",
    "shakeup",
    "sections",
    "html_page",
    "alignment",
    "_alignment_kernels",
    "text_plots",
}
LEAVES_MAY = {"retrievers.base"} | {f"harness.{leaf}" for leaf in LEAVES}
KEPT_MAY = LEAVES_MAY | {"retrievers.tokenize", "retrievers.encoders"}  # for their types
MIDDLE_MAY = LEAVES_MAY | {"harness.datasets", "harness.evidence", "harness.kept"}
TOP_MAY = MIDDLE_MAY | {"harness.pipeline", "harness.report", "harness.tracking"}
MAY = dict.fromkeys(LEAVES, LEAVES_MAY) | {
    "datasets": LEAVES_MAY,
    "kept": KEPT_MAY,
    "evidence": LEAVES_MAY | {"harness.datasets", "harness.kept"},
    "pipeline": MIDDLE_MAY,
    "report": MIDDLE_MAY | {"harness.pipeline"},
    "tracking": LEAVES_MAY,
    "gate_view": MIDDLE_MAY | {"harness.pipeline"},
    "run_note": TOP_MAY | {"harness.gate_view", "harness.markdown"},
    "run_page": TOP_MAY | {"harness.gate_view", "harness.gate_plots", "harness.run_note"},
    "searcher": MIDDLE_MAY | {"harness.pipeline", "retrievers.encoders", "retrievers.tokenize"},
    "model": TOP_MAY | {"harness.mlflow_tracker", "harness.records", "harness.searcher"},
    "model_code": {"harness.model", "retrievers.base"},
    "traces": MIDDLE_MAY | {"harness.pipeline", "harness.tracking"},
    "ledger": LEAVES_MAY | {"harness.tracking"},
    "history": TOP_MAY | {"harness.ledger"},
    "reproduce": TOP_MAY | {"harness.records", "harness.experiment"},
    "mlflow_tracker": LEAVES_MAY | {"harness.tracking"},
    "unsent": TOP_MAY,
    "gate_plots": MIDDLE_MAY | {"harness.gate_view"},
    "records": TOP_MAY | {"harness.unsent"},
    "experiment": TOP_MAY
    | {"harness.records", "harness.run_page", "harness.searcher", "harness.tasks", "harness.traces", "harness.unsent"},
    "tasks": TOP_MAY | {"harness.records", "harness.run_page", "harness.text_page"},
    "plan": TOP_MAY | {"harness.records", "harness.tasks"},
    "trials": TOP_MAY | {"harness.records", "harness.plan", "harness.tasks", "harness.work"},
    "work": TOP_MAY | {"harness.records", "harness.plan", "harness.run_page", "harness.tasks"},
    "markdown": LEAVES_MAY | {"harness.tracking"},
    "text_page": LEAVES_MAY | {"harness.markdown"},
    "text_metrics": LEAVES_MAY | {"retrievers.tokenize"},
    "pair_models": LEAVES_MAY | {"retrievers.models"},
    "text_models": LEAVES_MAY | {"harness.pair_models", "retrievers.encoders", "retrievers.models"},
    "answers": LEAVES_MAY | {"harness.kept", "harness.text_metrics", "harness.text_models"},
    "corrections": LEAVES_MAY,
    "comparison": TOP_MAY,
    "text_comparison": TOP_MAY | {"harness.comparison", "harness.tasks"},
    "text_compare_page": LEAVES_MAY,
    "compare": TOP_MAY
    | {
        "harness.records",
        "harness.comparison",
        "harness.tasks",
        "harness.text_comparison",
        "harness.text_compare_page",
    },
    "sweep_report": TOP_MAY | {"harness.plan", "harness.trials"},
    "sweep": TOP_MAY | {"harness.records", "harness.plan", "harness.tasks", "harness.trials", "harness.sweep_report"},
    "export": TOP_MAY | {"harness.ledger", "harness.model", "harness.tasks"},
    "ui": TOP_MAY,
    "doctor": TOP_MAY,
    "cli": TOP_MAY | {"harness"},
}


def imported(path: Path) -> set[str]:
    """Modules of this project that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module in ("harness", "retrievers"):
                found |= {f"{node.module}.{name.name}" for name in node.names}
            else:
                found.add(node.module)
    return {name for name in found if name.partition(".")[0] in ("harness", "retrievers")}


@pytest.mark.parametrize("path", sorted((ROOT / "retrievers").glob("*.py")), ids=lambda path: path.name)
def test_retrievers_know_nothing_of_the_harness(path):
    names = imported(path)
    assert not [name for name in names if name.startswith("harness")]
    if path.name == "base.py":
        assert not names


@pytest.mark.parametrize("path", sorted((ROOT / "harness").glob("*.py")), ids=lambda path: path.name)
def test_the_harness_imports_downwards(path):
    if path.stem == "__init__":
        assert not imported(path)
        return
    assert imported(path) <= MAY[path.stem], f"{path.name} imports {sorted(imported(path) - MAY[path.stem])}"


HEAVY = {"torch", "sentence_transformers", "mlflow", "faiss", "pandas", "matplotlib", "numba", "scipy", "kiwipiepy",
         "pyarrow", "rich", "hydra", "omegaconf", "sklearn", "transformers", "huggingface_hub",
         "optuna", "sqlalchemy"}  # fmt: skip
SERVED = {"model_code.py"}  # executed by MLflow alone
COMPILED = {
    "_alignment_kernels.py",
    "_bm25_kernels.py",
    "_vector_kernels.py",
}  # numba at the top, imported where it is used


@pytest.mark.parametrize(
    "path",
    [*sorted((ROOT / "harness").glob("*.py")), *sorted((ROOT / "retrievers").glob("*.py"))],
    ids=lambda p: p.name,
)
def test_heavy_imports_happen_where_they_are_used(path):
    tops = [node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in tops if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in tops if isinstance(node, ast.ImportFrom) and node.module}
    found = {name.partition(".")[0] for name in names} & HEAVY
    assert not found or path.name in COMPILED | SERVED, found


@pytest.mark.parametrize(
    "path", [*(ROOT / "harness").glob("*.py"), *(ROOT / "retrievers").glob("*.py")], ids=lambda p: p.name
)
def test_modules_stay_readable_and_safe(path):
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= 400
    assert "pickle" not in text.replace("allow_pickle=False", "")
