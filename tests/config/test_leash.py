"""What flags, config files, overrides and references may decide about Hydra and the environment."""

import re
from contextlib import nullcontext

import cloudpickle
import pytest
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl

from harness import cli
from harness.config.leash import MOST, LeashedLoader, check_size
from harness.errors import BadInput

CODE = "{(): numpy.testing.runstring, astr: \"open('ran', 'w').close()\", dict: {}}"
SLURM = "hydra/launcher=submitit_slurm"
HANDLER = "{class: logging.FileHandler, filename: ran, delay: false}"


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Call `harness run` in an empty folder; its message, after checks that it is one and that nothing was done."""
    monkeypatch.chdir(tmp_path)

    def call(*words, command="run"):
        before = set(tmp_path.rglob("*"))
        code = cli.call(command, ["tracking=none", *words])
        captured = capsys.readouterr()
        assert code == 2, captured.err
        assert "Traceback" not in captured.err
        assert captured.out == ""
        assert set(tmp_path.rglob("*")) == before
        return captured.err

    return call


def write(folder, name, text):
    file = folder / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text if text.startswith("# @package") else f"# @package _global_\n{text}", "utf-8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"hydra: {{job_logging: {{filters: {{f: {CODE}}}}}}}", r"mine\.yaml sets hydra\.job_logging\.filters\.f"),
        (f"hydra: {{hydra_logging: {{formatters: {{f: {CODE}}}}}}}", r"sets hydra\.hydra_logging\.formatters"),
        (f"hydra: {{job_logging: {{handlers: {{f: {HANDLER}}}}}}}", r"sets hydra\.job_logging\.handlers"),
        ("hydra: {job_logging: {handlers: {console: {stream: ext://os.environ}}}}", r"sets hydra\.job_logging"),
        ("hydra: {job_logging: {root: {level: cfg://version}}}", r"sets hydra\.job_logging\.root\.level"),
        ("# @package hydra.job_logging\nroot: {level: DEBUG}", r"sets hydra\.job_logging\.root\.level"),
        ("hydra: ${x}\nx: {verbose: true}", r"sets hydra\b"),
        ("hydra: null", r"sets hydra\b"),
        ("hydra: 5", r"sets hydra\b"),
        ("hydra: {callbacks: {x: {_target_: harness.gates.gate.NoGate}}}", r"sets hydra\.callbacks\.x\._target_"),
        ("hydra: {job: {env_set: {LD_PRELOAD: evil.so}}}", r"sets hydra\.job\.env_set"),
        ("hydra: {job: {env_copy: [AWS_SECRET_ACCESS_KEY]}}", r"sets hydra\.job\.env_copy"),
        ("hydra: {job: {chdir: true}}", r"sets hydra\.job\.chdir"),
        ("hydra: {run: {dir: /tmp/else}}", r"sets hydra\.run\.dir"),
        ("hydra: {sweep: {dir: /tmp/else}}", r"sets hydra\.sweep\.dir"),
        ("hydra: {output_subdir: ../else}", r"sets hydra\.output_subdir"),
        ("hydra: {searchpath: ['pkg://antigravity']}", r"hydra\.searchpath is only supported from the primary config"),
        ("hydra: {launcher: {ray: {init: {address: 'evil:6379'}}}}", r"sets hydra\.launcher\.ray"),
        ("hydra: {launcher: {setup: [evil]}}", r"sets hydra\.launcher\.setup"),
        ("hydra: {sweeper: {_target_: hydra_plugins.evil.Sweeper}}", r"sets hydra\.sweeper\._target_"),
        ("hydra: {sweeper: {params: '${x}'}}\nx: 1", r"sets hydra\.sweeper\.params"),
        ("hydra: {sweeper: {params: {x: {_target_: os.getcwd}}}}", r"hydra\.sweeper\.params\.x\._target_"),
        ("hydra: {sweeper: {params: {x: [[{_args_: [1]}]]}}}", r"hydra\.sweeper\.params\.x.*\._args_"),
        ("hydra: {overrides: {task: [top_k=5]}}", r"sets hydra\.overrides\.task"),
        ("defaults: [override /hydra/job_logging: stdout]", r"hydra\.job_logging\S* .*as shipped"),
        ("defaults: [override /hydra/job_logging: null]", r"hydra\.job_logging\S* .*as shipped"),
        ("defaults: [override /hydra/hydra_logging: hydra_debug]", r"hydra\.hydra_logging\S* .*as shipped"),
        ("defaults: [/dataset@hydra.job_logging.handlers.x: beir]", r"hydra\.job_logging\.handlers\.x"),
        ("defaults: [/gate@hydra.callbacks.x: none]", r"hydra\.callbacks\.x"),
    ],
)  # fmt: skip
def test_a_config_file_sets_nothing_of_hydra_but_what_a_sweep_needs(refused, tmp_path, text, message):
    write(tmp_path, "folder/experiment/mine", text)
    assert re.search(message, refused("--config-dir=folder", "experiment=mine"))


def test_choices_of_hydras_groups_and_recipes_that_are_swept_are_refused(refused, tmp_path):
    write(tmp_path, "folder/hydra/job_logging/mine", f"# @package hydra.job_logging\nfilters: {{f: {CODE}}}")
    write(tmp_path, "folder/experiment/mine", "defaults: [override /hydra/job_logging: mine]")
    assert "sets hydra.job_logging" in refused("--config-dir=folder", "experiment=mine")
    write(tmp_path, "folder/experiment/good", "top_k: 1")
    write(tmp_path, "folder/experiment/mine", f"hydra: {{job_logging: {{filters: {{f: {CODE}}}}}}}")
    assert "sets hydra.job_logging" in refused("--config-dir=folder", "experiment=good,mine", command="sweep")


def test_the_leash_goes_along_to_workers():
    there = cloudpickle.loads(cloudpickle.dumps(LeashedLoader(ConfigSearchPathImpl())))
    assert type(there) is LeashedLoader


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--config-path=pkg://antigravity"], "--config-path is not an option|--config-path=pkg.* is not an option"),
        (["--config-name=score"], "is not an option"),
        (["--config-dir=nowhere"], "nowhere' not found"),
        (["--resolve"], "--resolve and --package work only with"),
        (["--cfg=job", "-m"], "--cfg and --multirun exclude each other"),
        (["hydra.searchpath=[pkg://antigravity]"], r"hydra\.searchpath is refused"),
        (["++hydra.searchpath=[foo://x]"], r"hydra\.searchpath is refused"),
        (["hydra=null"], "hydra is refused"),
        (["+hydra@x=1"], "hydra is refused"),
        ([f"+hydra.job_logging.filters.f={CODE}"], r"hydra\.job_logging\.filters\.f is refused"),
        (["hydra.job_logging=null"], r"hydra\.job_logging is refused"),
        (["~hydra.job_logging"], r"hydra\.job_logging is refused"),
        (["hydra/job_logging=none"], r"hydra/job_logging is refused"),
        (["hydra/job_logging=disabled"], r"hydra/job_logging is refused"),
        (["hydra/job_logging=stdout"], r"hydra/job_logging is refused"),
        (["hydra/hydra_logging=hydra_debug"], r"hydra/hydra_logging is refused"),
        (["+hydra.callbacks.x=5"], r"hydra\.callbacks\.x is refused"),
        (["hydra.run.dir=x"], r"hydra\.run\.dir is refused"),
        (["hydra.job.chdir=true"], r"hydra\.job\.chdir is refused"),
        (["hydra.job.env_copy=[NOWHERE]"], r"hydra\.job\.env_copy is refused"),
        (["hydra.verbose=5"], r"hydra\.verbose=5 is not"),
        (["hydra.mode=both"], r"hydra\.mode is refused"),
        (["hydra.launcher=null"], r"hydra\.launcher must be one of"),
        (["hydra.launcher._target_=os.getcwd"], r"hydra\.launcher must be one of"),
        (["hydra/launcher=ray_aws"], r"hydra\.launcher must be one of|there is no such choice"),
        (["+hydra.launcher.x={_target_: os.getcwd}"], r"hydra\.launcher\.x\._target_ is refused"),
        (["+hydra.launcher._args_=[1]"], r"hydra\.launcher\._args_ is refused"),
        (["hydra/launcher=joblib", "hydra.launcher.n_jobs=99999"], r"hydra\.launcher\.n_jobs=99999 is too large"),
        ([SLURM, "hydra.launcher.partitoin=x"], r"hydra\.launcher\.partitoin is unknown here"),
        ([SLURM, "hydra.launcher.tasks_per_node=2"], "a job of a sweep is one process"),
        ([SLURM, "hydra.launcher.nodes=2"], "a job of a sweep is one process"),
        ([SLURM, "hydra.launcher.timeout_min=0"], "the minimum is 1"),
        ([SLURM, "hydra.launcher.timeout_min=long"], "could not be converted to Integer"),
        (["hydra.sweeper=5"], r"hydra\.sweeper must be one of"),
    ],
)  # fmt: skip
def test_a_command_line_sets_nothing_of_hydra_but_launcher_sweeper_and_verbosity(refused, words, message):
    assert re.search(message, refused(*words))


def test_a_package_named_as_a_search_path_is_not_imported(refused, tmp_path, monkeypatch):
    (tmp_path / "stranger").mkdir()
    (tmp_path / "stranger" / "__init__.py").write_text("open('ran', 'w').close()")
    monkeypatch.syspath_prepend(tmp_path)
    refused("hydra.searchpath=[pkg://stranger]")
    refused("--config-path=pkg://stranger")


@pytest.mark.parametrize("value", ["${oc.env:SECRET}", "${oc.env:MLFLOW_TRACKING_URI}", "${oc.env:NOT_SET,x}",
                                   "${oc.${kind}:SECRET}", "a ${oc.decode:'${oc.env:SECRET}'}"])  # fmt: skip
def test_a_config_reads_no_environment_variable_that_may_be_a_secret(refused, tmp_path, monkeypatch, value):
    monkeypatch.setenv("SECRET", "hunter2")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://hunter2@127.0.0.1")
    write(tmp_path, "folder/experiment/mine", f'kind: env\nrun_name: "{value}"')
    message = refused("--config-dir=folder", "experiment=mine")
    assert re.match(r"run_name reads the environment variable \w+\. .* HARNESS_", message)
    assert "hunter2" not in message


def test_a_config_reads_variables_of_the_harness(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HARNESS_DATA", "here")
    write(tmp_path, "experiment/mine", "dataset: {path: '${oc.env:HARNESS_DATA}/data'}")
    words = [f"--config-dir={tmp_path}", "dataset=contest", "experiment=mine", "--cfg=job", "--resolve", "-p=dataset"]
    assert cli.call("run", words) == 0
    assert "path: here/data" in capsys.readouterr().out


def test_a_named_sweep_of_ones_own_sets_what_it_varies(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "folder/sweep/mine", "hydra: {sweeper: {params: {top_k: '1,2,3'}}}")
    words = ["--config-dir=folder", "sweep=mine", "dry_run=true", "tracking=none", "tokenizer=word"]
    assert cli.call("sweep", words) == 0
    assert "3 trials" in capsys.readouterr().out


MANY = r"would have [\d,]+ characters once its references are resolved"


def bomb(levels: int, each: int) -> dict[str, str]:
    return {"z0": "x" * 10} | {f"z{i}": f"${{z{i - 1}}}" * each for i in range(1, levels)}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (bomb(11, 10), MANY),
        ({"a": {"b": ["x" * 100, "${a.c}" * 100], "c": "${.b[0]}" * 100}}, MANY),  # relative, into a list
        ({"g": {"x": "y" * 1000}, **{f"z{i}": [f"${{{f'z{i - 1}' if i else 'g'}}}"] * 10 for i in range(4)}}, MANY),
        ({"i": 0, "z0": "x", "a": {"b": "${z${i}}"}}, r"a\.b: \$\{z\$\{i\}\}: a key's name must not contain"),
        ({"a": "x" * (MOST // 2)}, None),
        ({"kind": "env", "a": "${oc.${kind}:HARNESS_X}"}, None),
        ({"outputs": "o", "path": "${oc.env:CACHE,${outputs}/cache}"}, None),
        ({"a": "${b}", "b": "${a}"}, None),  # OmegaConf refuses circles, and says where
        ({"a": "${nowhere}"}, None),
        (bomb(4, 10), None),
    ],
)
def test_references_of_references_are_counted(config, message):
    with pytest.raises(BadInput, match=message) if message else nullcontext():
        check_size(config)
