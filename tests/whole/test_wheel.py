"""The harness works as an installed wheel: it includes configs and sample."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from harness.testset.review.server import FILES

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_wheel_runs_in_an_empty_folder(tmp_path):
    def call(*words, **env):
        done = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, cwd=tmp_path / "empty", env=os.environ | env
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    (tmp_path / "empty").mkdir()
    call("-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT))
    [wheel] = tmp_path.glob("*.whl")
    packed = zipfile.ZipFile(wheel).namelist()
    assert {str(path.relative_to(ROOT)) for path, _ in FILES.values()} <= {*packed}
    names = {name.partition("/")[0] for name in packed}
    assert names == {"harness", "retrievers", wheel.name.rpartition("-py3")[0] + ".dist-info"}
    prompts = {path.relative_to(ROOT).as_posix() for path in (ROOT / "harness").glob("**/prompts/**/*.txt")}
    assert len(prompts) >= 12
    assert prompts <= {*packed}

    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)  # as pip installs a wheel of Python files
    # The installed copy precedes this checkout on the path.
    code = "import harness, sys; from harness.cli import main; print(harness.__file__, file=sys.stderr); main()"
    out = call("-c", code, "run", "format=json", "tokenizer=word", PYTHONPATH=str(site))
    found = json.loads(out)
    assert found["counts"]["scored"] == 60
    assert Path(found["files"]["predictions"]).is_relative_to(tmp_path / "empty" / "outputs")
    assert (tmp_path / "empty" / "outputs" / "mlflow.db").is_file()
    assert str(site) in call("-c", "import harness; print(harness.__file__)", PYTHONPATH=str(site))
