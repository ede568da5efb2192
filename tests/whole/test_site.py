"""The documentation's site is built without a warning, shows everything, and loads nothing from elsewhere."""

import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

from harness.cli import COMMANDS
from harness.config.check import primary
from harness.config.manual import choice_files, manual
from harness.measures.ranking_measures import MEASURES

ROOT = Path(__file__).resolve().parents[2]
LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(?:https?:)?//|<link\b(?![^>]*\b(?:canonical|alternate)\b)[^>]*\bhref=\"?"
    r"(?:https?:)?//|@import|url\([\"']?(?:https?:)?//"
)
VARIABLE = re.compile(r'"((?:AWS|CUDA|HARNESS|HF|HUGGING|HYDRA|MLFLOW|NUMBA|OMP|OPENAI|RAY|WANDB)_[A-Z_]*[A-Z])"')
OWN = {  # variables that the harness sets for the libraries and its own processes
    "HARNESS_HOSTS_NAMED", "MLFLOW_BACKEND_STORE_URI", "MLFLOW_DISABLE_TELEMETRY", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "NUMBA_CPU",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "RAY_SCHEDULER_EVENTS", "RAY_USAGE_STATS_ENABLED",
}  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as for its publication. The build fails for dead links and anchors, and for pages left out."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    words = ["build", "-f", str(ROOT / "scripts" / "site" / "mkdocs.yml"), "-d", str(folder)]
    variables = {"REPOSITORY_URL": "https://code.example/us", "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", *words], env=os.environ | variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


def text(site, page):
    return unescape((site / page / "index.html").read_text("utf-8"))


@pytest.mark.slow
def test_the_reference_shows_every_command_component_and_measure(site):
    for command in COMMANDS:
        shown = text(site, f"reference/commands/{command.replace(' ', '-')}")
        own = manual(primary(command))
        assert all(f"<code>{key}</code>" in shown for key in own.keys)
        for group in own.groups:
            page = text(site, f"reference/components/{group if group != 'index' else 'vector_index'}")
            assert all(f'id="{choice}"' in page for choice in choice_files(group))
    assert all(f'id="{name}"' in text(site, "reference/measures") for name in MEASURES)
    assert "https://code.example/us/blob/HEAD/conf/retriever/bm25.yaml" in text(site, "reference/components/retriever")


@pytest.mark.slow
def test_both_languages_have_a_home_and_load_nothing_from_elsewhere(site):
    assert '<html lang="en"' in text(site, ".")
    assert '<html lang="ko"' in text(site, "ko")
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert [path for path in pages if LOADED.search(path.read_text("utf-8"))] == []


def test_every_environment_variable_is_described():
    modules = [*(ROOT / "harness").rglob("*.py"), *(ROOT / "retrievers").rglob("*.py")]
    read = {name for path in modules for name in VARIABLE.findall(path.read_text("utf-8"))}
    described = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "environment.md").read_text("utf-8")))
    assert read - described == OWN
