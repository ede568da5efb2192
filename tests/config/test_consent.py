"""Who may set a key: every key of every command is reviewed here, so that none is added without a decision."""

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from harness.config import consent, defaults, manual
from harness.errors import BadInput

# Keys that a stranger's harness.yaml may set to anything. They decide what is computed or read. None says where
# anything is sent or written, which secret is used, what is overwritten or deleted, who reaches this machine, or which
# code runs. One line for each group; its own keys follow without the group's name.
REVIEWED = """
-: format metrics objective objectives experiment_name metric select_on run top runs resamples seed sort show against
-: slices slice_margin margin bounds undecided baseline measures
-: model model_name public private scale run_name top_k depth trace power alpha files unreadable verify_only fresh
-: predictions references missing query dry_run budget relevant_from documents limit questions kinds language examples
-: concurrency rates seconds queries timeout arrivals
-: trials_per_job fail_if pairs easiness version leave_out formats prompt reviewer sample via from port
answer: llm prompt
audit: queries seed
chunk: splitter separator size overlap unit tokenizer note
cluster: shard runtime.encoding_cores runtime.encoding_gpus
data: path documents queries qrels corpus qa files testset
dataset: path documents queries qrels corpus qa files testset split unreadable
dataset.chunk: splitter separator size overlap unit tokenizer note
encoder: max_characters model revision path max_length query_prefix document_prefix normalise dtype low high dimensions
encoder: seed runtime.threads runtime.device runtime.batch_tokens
filters: copied duplicate
fusion: normalise weights weights.bm25 weights.bigram weights.dense floors k folds repeats file
gate: threshold source signal k llm prompt request.max_tokens request.max_completion_tokens file signals sources folds
gate: repeats embedding
index: nlist nprobe m bits candidates ef_construction ef_search index_type build search
judge: controls
llm: model request.temperature request.max_tokens request.max_completion_tokens replies price.input price.output
llm: runtime.timeout runtime.retries runtime.parallel
pool: depth sample
prompts: fact search conversation none unanswerable
query: text file prompt
rerank: model revision path depth max_length dtype runtime.device runtime.batch_tokens
retriever.*: method body body.* ids scores repeats version encoder cache function tokenizer variant k1 b delta epsilon
retriever.*: engine tokenizer.low tokenizer.high index passages window overlap path missing model revision max_length
retriever.*: dtype runtime.timeout runtime.retries runtime.parallel runtime.threads runtime.device runtime.batch_tokens
search: sampler trials batch seed budget
task: scheme merge_gap columns.id columns.source columns.reference columns.type columns.prediction tokenizer
task.*: model revision path layer runtime.device runtime.batch_tokens
tokenizer: language stop_words tags low high runtime.workers
tracking: bulk detail trials
"""
FREE = [
    name if group == "-" else f"{group}.{name}"
    for group, _, names in (line.partition(": ") for line in REVIEWED.strip().splitlines())
    for name in names.split()
]


def listed(key):
    """In how many of the lists a key is."""
    free = any(fnmatchcase(key, pattern) for pattern in FREE)
    return free + (consent.writes(key) and not consent.needs_command_line(key)) + consent.needs_command_line(key)


def test_every_key_of_every_command_is_reviewed():
    wrong = [key for key in defaults.every_key() if key not in defaults._groups() and listed(key) != 1]
    assert not wrong, (
        f"{wrong}: each key must be in one list. Does it say where data or secrets go, what is overwritten or deleted, "
        "who reaches this machine, or which code runs? Then give it the role ACTS, or add its name to SENDS of "
        "harness/config/consent.py. Does it name what is written? Then the role WRITES. Else add it to REVIEWED here."
    )


def test_nothing_is_listed_that_no_command_has():
    known = defaults.every_key()
    stale = [one for one in FREE if not any(fnmatchcase(key, one) for key in known)]
    assert stale == []
    ours = {part for key in known for part in key.split(".")}
    others = {"*endpoint", "*server", "*headers*", "*_key", "*token", "*secret*", "*password*", "hydra"}
    assert {one for one in consent.SENDS if not any(fnmatchcase(part, one) for part in ours)} <= others  # of plug-ins


def test_choices_that_send_are_reviewed():
    assert {*manual.choice_files("tracking")} - {*consent.CHOICES["tracking"]} == {"wandb"}
    assert not consent.consent_refusal("tracking", "mlflow", Path())
    assert list(consent.CHOICES) == ["tracking"]


COMMAND_LINE = [
    "tracking.uri", "tracking.entity", "llm.base_url", "llm.runtime.api_key_env", "retriever.mine.url", "output",
    "retriever.http.runtime.headers_env.X-Steal", "retriever.mine.endpoint", "encoder.api_token", "prune.keep_gb",
    "cluster.runtime.address", "host", "open", "plugins.allow", "hydra/launcher", "hydra.run.dir",
]  # fmt: skip
ANYWHERE = ["dataset.path", "llm.request.max_tokens", "encoder.runtime.batch_tokens", "outputs"]


@pytest.mark.parametrize("key", [*COMMAND_LINE, *ANYWHERE])
def test_which_keys_only_the_command_line_may_set(key):
    assert consent.needs_command_line(key) == (key in COMMAND_LINE)


@pytest.mark.parametrize("key", ["outputs", "store.path", "dataset.runtime.store", "tracking.path", "testset",
                                 "submission"])  # fmt: skip
@pytest.mark.parametrize("value", ["/elsewhere", "../elsewhere", "a/../../b", "link/a", "s3://theirs/a", "sqlite:/a"])
def test_places_outside_the_folder_are_refused(tmp_path, key, value):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(tmp_path)
    file = tmp_path / "folder" / "harness.yaml"
    with pytest.raises(BadInput, match=r"harness\.yaml:1: .*outside this folder; .* on the command line"):
        defaults.parse_defaults(f"{key}: {value}", file)
    assert defaults.parse_defaults(f"{key}: inner/place", file)
