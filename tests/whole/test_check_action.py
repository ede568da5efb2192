"""The GitHub action that checks retrieval, this repository's job that uses it, and the tutorial about it."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
HERE = "./.github/actions/check"
ACTION = yaml.safe_load((ROOT / HERE / "action.yml").read_text("utf-8"))
INSTALL, CHECK = (step for step in ACTION["runs"]["steps"] if "run" in step)
TUTORIAL = (ROOT / "docs/tutorials/guard.md").read_text("utf-8")
DEFAULTS = {name: one["default"] for name, one in ACTION["inputs"].items()}
HARSH = """$(touch bad) `touch bad`; touch bad '"* """  # would leave a file if a shell ran a part of it


def job():
    """What the project's own job gives to the action."""
    steps = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))["jobs"]["check"]["steps"]
    [given] = [step["with"] for step in steps if step["uses"] == HERE]
    return given


@pytest.fixture
def step(tmp_path):
    """Run a step as GitHub does, with `harness` and `python` that print their arguments: step(CHECK, junit="a.xml")."""
    for name, code in (("harness", 3), ("python", 0)):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\nprintf '%s\\n' {name} \"$@\"\nexit {code}\n")
        program.chmod(0o755)

    def run(one, **inputs):
        values = {f"${{{{ inputs.{name} }}}}": value for name, value in (DEFAULTS | inputs).items()}
        environment = {name: values.get(value, value) for name, value in one["env"].items()}
        environment |= {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "GITHUB_ACTION_PATH": "/a"}
        environment["GITHUB_STEP_SUMMARY"] = str(tmp_path / "summary.md")
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", one["run"]]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert not (tmp_path / "bad").exists()
        return done.returncode, done.stdout.splitlines()

    return run


def test_the_check_gets_each_line_as_one_argument_and_its_exit_code_is_passed_on(step, tmp_path):
    code, said = step(CHECK, baseline="a b.json", arguments=f"gate=auto\n\n{HARSH}\n")
    assert code == 3
    assert said == ["harness", "check", "baseline=a b.json", "junit=check.xml", "format=markdown", "gate=auto", HARSH]
    assert (tmp_path / "summary.md").read_text().splitlines() == said


def test_what_is_installed(step):
    pip = ["python", "-m", "pip", "install"]
    assert step(INSTALL) == (0, [*pip, "-c", "/a/../../../constraints.txt", "/a/../../.."])
    assert step(INSTALL, package=f"mine==1\n{HARSH}\n") == (0, [*pip, "mine==1", HARSH])


def test_no_input_is_a_part_of_a_program():
    assert ACTION["runs"]["using"] == "composite"
    assert not [step for step in (INSTALL, CHECK) if "${{" in step["run"] or step["shell"] != "bash"]


def test_the_sample_holds_with_the_arguments_of_our_job(harness):
    given = job()
    assert given.keys() <= DEFAULTS.keys()
    words = [f"baseline={ROOT / given['baseline']}", "junit=check.xml", "format=markdown", *given["arguments"].split()]
    done = harness("check", *words)
    assert (done.code, done.out.partition(":")[0]) == (0, "**Holds"), done.out


def test_the_tutorial_shows_true_output_and_true_exit_codes(harness):
    blocks = re.findall(r"^```bash\nharness (.*)\n```(?:\n\n```\n((?:.*\n)*?)```)?", TUTORIAL, re.M)
    assert [re.findall(r"exit code (\d)", words) for words, _ in blocks] == [[], [], ["3"], ["4"]]
    for words, shown in blocks:
        done = harness(*words.partition("#")[0].split())
        assert done.code == int("".join(re.findall(r"exit code (\d)", words)) or 0)
        assert " ".join(shown.split()) in " ".join(done.out.split())
    [program] = re.findall(r"```python\n(.*?)```", TUTORIAL, re.S)
    names = {}
    exec(program, names)
    names["test_retrieval_is_not_worse"]()
    Path("harness.yaml").write_text("tokenizer: whitespace\n")
    with pytest.raises(AssertionError, match=r"Regressed: modified_map@3 went from 0\.5750 to 0\.3833"):
        names["test_retrieval_is_not_worse"]()


def test_the_workflow_of_the_tutorial_uses_the_action(harness):
    [workflow] = re.findall(r"```yaml\n(.*?)```", TUTORIAL, re.S)
    [*_, step] = yaml.safe_load(workflow)["jobs"]["retrieval"]["steps"]
    assert step["uses"] == f"OWNER/retrieval-harness/{HERE.removeprefix('./')}@main"
    assert step["with"].keys() <= DEFAULTS.keys()
    given = step["with"]
    harness("check", f"save={given['baseline']}", "tracking=none")
    assert harness("check", f"baseline={given['baseline']}", *given["arguments"].split()).code == 0
