"""Errors as messages for people, and answers to the commonest slips of a command line."""

import re

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from mlflow.exceptions import MlflowException
from omegaconf.errors import OmegaConfBaseException

from harness import cli
from harness.config import messages
from harness.config.components import conf_folder
from harness.config.messages import explain, failure
from harness.errors import BadInput, Failed


def of_hydra(*words):
    """What a person reads when Hydra refuses these words of `harness run`."""
    with pytest.raises((HydraException, OmegaConfBaseException)) as refused:  # noqa: SIM117
        with initialize_config_dir(str(conf_folder()), version_base="1.3"):
            compose("run", list(words))
    return explain(refused.value, "run", words)


OTHERS = "or choose another folder: outputs=FOLDER, store.path=FOLDER."
FULL = f"Free some space (`harness doctor cache` lists and removes entries), {OTHERS}"
ALLOW = f"Allow this user to write there, {OTHERS}"
OF_MLFLOW = "Failures occurred:\n##### File a #####\n[Errno 28] No space left on device: '/a/b' -> '/c/d'\n"


@pytest.mark.parametrize(
    ("error", "explained", "failed"),
    [
        (BadInput("depth=1 is less than top_k=3."), "depth=1 is less than top_k=3.", None),
        (FileExistsError(17, "File exists", "/data/x"), f"/data/x: File exists. C{OTHERS[4:]}", None),
        (OSError(28, "No space left on device", "/data/x"), None, f"/data/x: No space left on device. {FULL}"),
        (OSError(27, "File too large", "/from", None, "/data/x"), None, f"/data/x: File too large. {FULL}"),
        (OSError(30, "Read-only file system", "/data/x"), None, f"/data/x: Read-only file system. {ALLOW}"),
        (PermissionError(13, "Permission denied", "/data/x"), None, f"/data/x: Permission denied. {ALLOW}"),
        (MlflowException(OF_MLFLOW), None, f"/c/d: No space left on device. {FULL}"),
        (Failed("the server is gone"), None, "the server is gone"),
        # Other errors show their traceback.
        (ValueError("a bug"), None, None),
        (OSError(5, "Input/output error"), None, None),
        (MlflowException("a bug of a server"), None, None),
    ],
)
def test_bad_input_and_failures_whose_reason_is_known_have_messages(error, explained, failed):
    assert (explain(error, "run", []), failure(error)) == (explained, failed)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("retriever=bm26", "retriever=bm26: there is no such choice. Did you mean 'bm25'?"),
        ("fusion.weights={mate: 1}", "fusion.weights.mate is unknown here: a new name needs a plus sign: +fusion"),
        ("retriever.bm25.runtime={thread: 1}", "retriever.bm25.runtime.thread is unknown here. Did you mean"),
        ("top_k=(", "See `harness run --help`."),
    ],
)
def test_hydras_errors_in_plain_words(word, expected):
    assert expected in of_hydra(word)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


WORDS = [
    ("search 달은 왜", r"Put the query in quotation marks: harness search query='달은 왜'$"),
    ("search moon", r"harness search query='moon'$"),
    ("run --retriever bm25", r"--retriever bm25: write options without dashes, as retriever=bm25\.$"),
    ("run --format=json", r"dashes, as format=json\.$"),
    ("run --dataset.path data", r"dashes, as dataset\.path=data\.$"),
    ("run --top-k=5", r"dashes, as top_k=5\.$"),
    ("run --halp", r"--halp is not an option of `harness run`\. Did you mean '--help'"),
    ("run bm25", r"'bm25' has no key\. Did you mean retriever=bm25\?"),
    ("run retriever bm25", r"Write retriever=bm25 instead of 'retriever bm25'"),
    ("run top_k: 5", r"Write top_k=5 instead of 'top_k: 5'"),
    ("run top_k = 5", r"without spaces: harness run top_k=5$"),
    ("run top_k= 5", r"without spaces: harness run top_k=5$"),
    ("run top_k", r"top_k has no value\. Write top_k=VALUE"),
    ("run =3", r"'=3' has no key"),
    ("run what", r"'what' has no key\. Write KEY=VALUE"),
    ("compare objective=map", r"objective is unknown here: it is set when a run is made.*, and metric=NAME"),
    ("export record best.csv", r"Did you mean submission=best\.csv\?"),
    ("score best.csv", r"Did you mean predictions=best\.csv\?"),
    ("doctor caches", r"no command 'doctor caches'\. Did you mean 'doctor cache'"),
]


@pytest.mark.parametrize(("line", "message"), WORDS)
def test_words_that_are_no_overrides(line, message):
    words = line.split(" ")
    command = next(name for n in (2, 1) if (name := " ".join(words[:n])) in cli.COMMANDS)
    with pytest.raises(BadInput, match=message):
        messages.check_words(command, words[len(command.split()) :], cli.COMMANDS)


def test_overrides_and_hydras_flags_pass():
    for line in ("top_k=1 --cfg job -m ~gate", "--config-dir mine experiment=x", "hydra.run.dir=x --config-d x"):
        messages.check_words("run", line.split(), cli.COMMANDS)


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("format=json run", "harness run format=json"),
        ("--format json run top_k=1", "harness run --format json top_k=1"),
        ("--cfg job run", "harness run --cfg job"),
    ],
)
def test_the_command_comes_first(line, right, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(line.split())
    assert end.value.code == 2
    assert capsys.readouterr().err == f"The command comes first: {right}\n"


KEYS = [
    ("run dataset.path", r"dataset=sample does not have it\. Choose dataset=autorag, beir, .*, squad or testset\."),
    ("run gate.threshold", r"gate=none does not have it\. Choose gate=score\."),
    ("run gate.threshold gate=auto", r"gate=auto does not have it"),
    ("run fusion.weights.bigram", r"Choose retriever=hybrid_lexical or hybrid_light\."),
    ("sweep gate.threshold gate=none,auto", r"none of gate=none,auto has it\. Choose gate=score\."),
    ("run gate.treshold", r"Did you mean 'gate\.threshold', which gate=score has\?"),
    ("run gate.treshold gate=score", r"Did you mean 'gate\.threshold'\?"),
    ("run retriever.k1", r"Did you mean 'retriever\.bm25\.k1'\?"),
    ("run top_kk", r"Did you mean 'top_k'\?"),
    ("run port", r"It is a key of `harness ui`, `harness testset review`\."),
    ("run search.trials", r"It is a key of `harness sweep`\."),
    ("run llm.modell", r"Did you mean 'llm\.model'\?"),
    ("run hydra.launcher.n_job", r"Did you mean 'hydra\.launcher\.n_jobs'\?"),
    ("run hydra.launcher.n_jobs", r"the launcher does not have it\. Choose another one: hydra/launcher=NAME\."),
    ("run xyzzy", r"xyzzy is unknown here\. See `harness run --help`\."),
]


@pytest.mark.parametrize(("line", "message"), KEYS)
def test_unknown_keys(line, message):
    command, key, *words = line.split()
    assert re.search(message, messages.unknown_key(key, command, [f"{key}=1", *words]))


def test_an_unknown_key_of_the_file_comes_with_its_line(tmp_path):
    (tmp_path / "harness.yaml").write_text("# mine\ndataset.path: data\n")
    assert "(harness.yaml:2): dataset=sample does not have it" in messages.unknown_key("dataset.path", "run", [])
