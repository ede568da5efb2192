"""`harness init`: the file of defaults."""

import pytest

WORDS = ("dataset=contest", "dataset.path=toy", "tokenizer=word", "experiment_name=007")


def test_it_writes_what_every_command_then_uses(harness, toy, tmp_path):
    assert "3 documents, 3 queries, 3 labelled" in harness("init", *WORDS).text
    path = tmp_path / "harness.yaml"
    lines = path.read_text().splitlines()
    assert lines[2:] == ["dataset: contest", "dataset.path: toy", "tokenizer: word", "experiment_name: '007'"]
    found = harness("run", "tracking=none", "format=json").json
    assert (found["experiment"], found["counts"]["scored"]) == ("007", 3)
    # The same again changes nothing, and other contents stay.
    path.write_text(path.read_text() + "# mine\n")
    before = path.read_bytes()
    assert harness("init", *WORDS).code == 0
    refused = harness("init", "dataset=contest", "dataset.path=toy").refusal
    assert "harness.yaml exists and has other contents" in refused
    assert refused.endswith("differ:\n  tokenizer: word → (none)\n  experiment_name: '007' → (none)\n")
    assert path.read_bytes() == before


def test_labels_that_are_missing_are_named_and_may_be_added(harness, toy, tmp_path):
    (toy / "qrels.jsonl").rename(tmp_path / "aside")
    words = ("init", "dataset=contest", "dataset.path=toy")
    told = harness(*words).text
    assert "0 labelled" in told
    assert "Data: No labels: nothing will be scored. If you have labels, name their file: dataset.qrels=FILE." in told
    (tmp_path / "aside").rename(toy / "qrels_public.jsonl")
    said = harness(*words)
    assert "Data: No labels: nothing will be scored. toy/qrels_public.jsonl may have them." in said.text
    assert said.commands[0] == [*words, "dataset.qrels=toy/qrels_public.jsonl"]
    written = tmp_path / "harness.yaml"
    written.write_text(before := written.read_text() + "# mine")
    assert "3 labelled" in harness(*said.commands[0]).text
    assert written.read_text() == f"{before}\ndataset.qrels: toy/qrels_public.jsonl\n"


def test_what_a_run_would_refuse_is_not_written(harness, toy, tmp_path):
    for words, message in {
        (): "Give the keys",
        ("dataset.path=toy",): "dataset.path",
        ("dataset=contest", "dataset.path=nowhere"): "nowhere",
        ("top_k=0",): "top_k=0 is too small",
        ("top_k=1,2",): "top_k",
        ("~gate",): "gate",
        ("experiment_name=${oc.env:HARNESS_CACHE}",): "cannot refer to other values",
    }.items():
        assert message in harness("init", *words).refusal, words
        assert not (tmp_path / "harness.yaml").exists()


def test_lists_and_tasks(harness, toy, files, tmp_path):
    found = harness("init", "dataset=contest", "dataset.path=toy", "metrics=[map,ndcg@10]", "format=json").json
    assert found["defaults"]["metrics"] == ["map", "ndcg@10"]
    assert found["rows"] == {"documents": 3, "queries": 3, "labelled": 3}
    assert "format" not in (tmp_path / "harness.yaml").read_text()
    (tmp_path / "harness.yaml").unlink()
    assert harness("init", "task=corrections", "task.scheme=span").code == 0
    assert "task.scheme: span" in (tmp_path / "harness.yaml").read_text()


def test_choices_of_a_config_dir_are_known_and_named_again(harness, toy, tmp_path):
    (tmp_path / "mine" / "dataset").mkdir(parents=True)
    (tmp_path / "mine" / "dataset" / "ours.yaml").write_text("defaults: [contest]\npath: toy\n")
    first = harness("init", "--config-dir=mine", "dataset=ours").commands[0]
    assert first == ["run", "--config-dir=mine"]
    commands = harness(*first, "tokenizer=char_ngram").commands
    assert {words[1] for words in commands} == {"--config-dir=mine"}
    assert harness(*next(words for words in commands if words[0] == "export")).code == 0


@pytest.mark.slow
def test_a_tokenizer_for_the_language_of_the_documents_is_written(harness, tmp_path):
    (tmp_path / "documents.jsonl").write_text(
        '{"docid": "a", "content": "The moon orbits the earth and is the brightest of all in the sky."}\n'
        '{"docid": "b", "content": "Water boils at a hundred degrees, and that is the end of it."}\n'
    )
    (tmp_path / "eval.jsonl").write_text('{"eval_id": 1, "msg": [{"role": "user", "content": "moon"}]}\n')
    (tmp_path / "qrels.jsonl").write_text('{"eval_id": 1, "relevant": ["a"]}\n')
    words, written = ("dataset=contest", "dataset.path=."), tmp_path / "harness.yaml"
    run = harness("run", *words)
    assert "Data: The documents are in English, but tokenizer=kiwi is for Korean: tokenizer=snowball" in run.out
    said = harness("init", *words).text
    assert "tokenizer: snowball" in written.read_text().splitlines()
    assert "Data: The documents are in English, but tokenizer=kiwi is for Korean, so tokenizer=snowball was" in said
    assert harness("init", *words).code == 0, "the same again changes nothing"
    assert "  harness run retriever=hybrid encoder=lsa\n" in said, "bigrams help in Korean, not in English"
    assert "gate=auto" not in said, "every query needs documents"
    assert "tokenizer=" not in harness("run").out
    written.unlink()
    told = harness("init", *words, "tokenizer=kiwi")
    assert "tokenizer: kiwi" in written.read_text().splitlines(), "what was asked for"
    assert "tokenizer=snowball suits them better." in told.out
    assert "  harness run tokenizer=snowball\n" in told.out
