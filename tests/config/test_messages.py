"""Errors as messages for people."""

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from mlflow.exceptions import MlflowException
from omegaconf.errors import OmegaConfBaseException

from harness.config.components import conf_folder
from harness.config.messages import explain, failure
from harness.errors import BadInput, Failed


def of_hydra(*words):
    """What a person reads when Hydra refuses these words of `harness run`."""
    with pytest.raises((HydraException, OmegaConfBaseException)) as refused:  # noqa: SIM117
        with initialize_config_dir(str(conf_folder()), version_base="1.3"):
            compose("run", list(words))
    return explain(refused.value, "run", words)


def test_bad_input_speaks_for_itself():
    assert explain(BadInput("depth=1 is less than top_k=3."), "run", []) == "depth=1 is less than top_k=3."


def test_a_failure_of_the_run_is_no_bad_input():
    assert explain(ValueError("a bug"), "run", []) is None


def test_a_folder_that_cannot_be_written_names_the_way_out():
    assert explain(FileExistsError(17, "File exists", "/data/x"), "run", []) == (
        "/data/x: File exists. Choose another folder: outputs=FOLDER, store.path=FOLDER."
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(28, "No space left on device", "/data/x"), "/data/x: No space left on device. Free some space"),
        (OSError(27, "File too large", "/from", None, "/data/x"), "/data/x: File too large. Free some space"),
        (OSError(30, "Read-only file system", "/data/x"), "/data/x: Read-only file system. Allow this user"),
        (PermissionError(13, "Permission denied", "/data/x"), "/data/x: Permission denied. Allow this user"),
        (Failed("the server is gone"), "the server is gone"),
    ],
)
def test_a_failure_whose_reason_is_known_says_what_to_do(error, expected):
    assert (failure(error) or "").startswith(expected)
    assert isinstance(error, Failed) or "outputs=FOLDER, store.path=FOLDER" in (failure(error) or "")
    assert explain(error, "run", []) is None


def test_other_failures_show_their_traceback():
    assert failure(ValueError("a bug")) is None
    assert failure(OSError(5, "Input/output error")) is None


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("retriever=bm26", "retriever=bm26: there is no such choice. Did you mean 'bm25'?"),
        ("k1=2", "k1 is unknown here. Did you mean 'retriever.bm25.k1'?"),
        (
            "fusion.weights={mate: 1}",
            "fusion.weights.mate is unknown here: names are free there, so a new one needs a plus",
        ),
        ("retriever.bm25.runtime={thread: 1}", "retriever.bm25.runtime.thread is unknown here. Did you mean"),
        ("top_kk=2", "top_kk is unknown here. Did you mean 'top_k'?"),
        ("top_k=(", "See `harness run --help`."),
    ],
)
def test_hydras_errors_in_plain_words(word, expected):
    assert expected in of_hydra(word)


def test_a_full_disk_that_mlflow_met_is_a_full_disk():
    said = "Failures occurred:\n##### File a #####\n[Errno 28] No space left on device: '/a/b' -> '/c/d'\n"
    assert (failure(MlflowException(said)) or "").startswith("/c/d: No space left on device. Free some space")
    assert failure(MlflowException("a bug of a server")) is None
