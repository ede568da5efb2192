"""Commands with the cache in a bucket: the same numbers as with a folder, and nothing secret anywhere."""

import pytest
from buckets import SECRET

from harness.commands.doctor.command import cache_findings
from harness.config.commands import DoctorConfig


@pytest.mark.slow
def test_a_run_in_a_bucket_and_one_in_a_folder(harness, place, tmp_path, monkeypatch):
    words = ("run", "tracking=none", "format=json", "tokenizer=whitespace")
    in_folder = harness(*words, f"store.path={tmp_path / 'folder'}").json
    in_bucket = harness(*words, f"store.path={place.url}").json
    assert in_bucket["metrics"] == in_folder["metrics"]
    made = set(place)
    monkeypatch.setenv("HARNESS_CACHE_LOCAL", str(tmp_path / "another"))
    monkeypatch.setenv("HARNESS_CACHE", place.url)
    again = harness(*words)
    assert again.json["metrics"] == in_folder["metrics"]
    assert {name for name in place if not name.startswith("timings/")} <= made, "the second machine computes nothing"
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file
    assert SECRET not in again.out + again.err


@pytest.mark.slow
def test_a_sweep_on_two_processes(harness, place, tmp_path):
    words = ("sweep", "tokenizer=whitespace,char_ngram", "top_k=1,3", "hydra/launcher=joblib", "format=json",
             "hydra.launcher.n_jobs=2")  # fmt: skip
    in_folder, in_bucket = (
        harness(*words, f"store.path={store}", f"experiment_name=e{n}").json["top"]
        for n, store in enumerate([str(tmp_path / "folder"), place.url])
    )
    assert [one["value"] for one in in_bucket] == [one["value"] for one in in_folder]
    assert len({name.split("/")[1] for name in place if name.startswith("rankings/")}) == 2, "each is computed once"


@pytest.mark.slow
def test_doctor_checks_lists_and_prunes_a_bucket(harness, place):
    harness("run", "tracking=none", "tokenizer=whitespace", f"store.path={place.url}")
    [found] = cache_findings(DoctorConfig.of({"store": {"path": place.url}, "plugins": {"allow": []}}))
    assert (found.about, found.state) == ("cache", "warning")
    assert "its traffic is not encrypted" in found.said
    listed = harness("doctor cache", f"store.path={place.url}", "format=json").json
    assert listed["path"] == place.url
    assert {"rankings", "indexes", "tokens"} <= set(listed["kinds"])
    pruned = harness("doctor cache", f"store.path={place.url}", "prune.keep_gb=0", "format=json").json
    assert pruned["pruned"]["entries"] == len(listed["entries"])
    assert list(place) == [".conditions"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("store.path=gs://bucket/x",), "gs:// is not supported"),
        (("store.path=S3://bucket/x",), "write s3://bucket/x"),
        (("store.path=s3://me:hidden@bucket/x",), "credentials come from the environment"),
        (("outputs=s3://bucket/x",), "outputs must be a folder"),
        (("store.path=s3://nowhere/x",), "has no bucket 'nowhere'"),
    ],
)
def test_bad_places(harness, place, words, message):
    done = harness("run", "tracking=none", *words)
    assert done.code == 2
    assert message in done.err
    assert "hidden" not in done.err
