"""Components of other distributions: found, checked, identified, and named where they are broken."""

import sys

import plugin_wheels
import pytest

from harness.config import components, help, plugins
from harness.config.components import component_identity, recorded_name, target_class
from harness.errors import BadInput

TOY = ("dataset=contest", "dataset.path=toy", "tokenizer=word", "format=json")
OVERLAP = {"_target_": "overlap_search.retriever.Overlap", "least": 1}


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on the import path; install(files, name=...) puts a plug-in there."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    before = set(sys.modules)

    def install(files=None, **about):
        plugin_wheels.unpack(plugin_wheels.wheel(tmp_path, files, **about), folder)
        plugins.installed_plugins.cache_clear()

    yield install
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]
    monkeypatch.undo()
    plugins.installed_plugins.cache_clear()


def changed(**texts):
    """The files of the plug-in with some of them changed: by the end of its path -> text."""
    files = dict(plugin_wheels.FILES)
    for name, text in texts.items():
        path = next(path for path in files if path.endswith(name.replace("__", ".")))
        files[path] = text
    return files


def test_a_plugin_is_found_without_importing_it_and_its_class_is_a_component(site, tmp_path, monkeypatch):
    site()
    [found] = plugins.installed_plugins()
    assert (found.name, found.distribution, found.version, found.problem) == ("overlap", "overlap-search", "1.0", "")
    assert found.choices == [("retriever", "overlap")]
    assert "overlap_search" not in sys.modules
    cls = target_class(OVERLAP, "retriever.overlap")
    assert recorded_name(cls) == "retriever/overlap"
    assert target_class({"_target_": "retriever/overlap"}, "x") is cls
    assert component_identity(OVERLAP) == {
        "target": "retriever/overlap", "version": 1, "packages": {}, "arguments": {"least": 1},
        "distribution": {"name": "overlap-search", "version": "1.0"},
    }  # fmt: skip
    monkeypatch.chdir(tmp_path)
    page = help.help_page("run", ["retriever=overlap"])
    assert "* overlap" in page
    assert "retriever.overlap.least=1" in page
    with pytest.raises(BadInput, match=r"Choose one with retriever=NAME: .*hybrid_lexical, .*overlap"):
        components.check_component({"_target_": "encoder/lsa"}, "retriever")


@pytest.mark.slow
def test_it_runs_and_is_swept_and_without_it_reproduce_says_what_is_missing(site, harness, toy, tracker, monkeypatch):
    site()
    run_id = harness("run", *TOY, "retriever=overlap", "experiment_name=e").json["run_id"]
    assert tracker.run(run_id).tags["version.overlap-search"] == "1.0"
    assert harness("sweep", *TOY, "retriever=bm25,overlap", "top_k=1,2", "experiment_name=e").json["best"]
    assert harness("run", *TOY, "retriever=[bm25,overlap]", "gate=auto", "tracking=none").code == 0
    monkeypatch.setattr(sys, "path", [one for one in sys.path if not one.endswith("site")])
    plugins.installed_plugins.cache_clear()
    done = harness("reproduce", f"run={run_id}")
    assert done.code == 2
    assert "no component is recorded as 'retriever/overlap'" in done.err
    assert "The run used plug-ins, which must be installed here: overlap (overlap-search 1.0)" in done.err
    assert harness("compare", "experiment_name=e", "top=2", "format=json").json
    assert harness("run", *TOY, "retriever=overlap").code == 2


BROKEN = [
    # files, what is used, message
    ({"entry": "overlap = nowhere"}, {}, "there is no package 'nowhere'"),
    ({"entry": "overlap = overlap_search:Overlap"}, {}, "must name a package"),
    ({"entry": "overlap = retrievers.lexical"}, {}, "the package retrievers.lexical is the harness's own"),
    ({}, {"files": {"overlap_search/__init__.py": ""}}, "there is no such folder of configs"),
    ({}, {"overlap__yaml": "overlap: [1"}, "this is not a config: expected"),
    ({}, {"overlap__yaml": "- 1"}, "overlap.yaml is not a config: it holds no keys"),
    ({}, {"more": "retriever/bm25.yaml"}, "retriever=bm25 is shipped with the harness"),
    ({}, {"more": "run.yaml"}, "a plug-in may bring only choices of dataset, retriever"),
    ({}, {"more": "hydra/launcher/x.yaml"}, "a plug-in may bring only choices of dataset, retriever"),
    ({}, {"more": "retrievers/x.yaml"}, "Did you mean 'retriever'?"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("about", "how", "problem"), BROKEN)
def test_a_broken_plugin_is_named_and_harms_nobody(site, harness, toy, about, how, problem):
    files = how.get("files") or changed(**{key: text for key, text in how.items() if "__" in key})
    if "more" in how:
        files[f"overlap_search/conf/{how['more']}"] = "x: {_target_: overlap_search.retriever.Overlap}"
    site(files, **about)
    [found] = plugins.installed_plugins()
    assert problem in found.problem
    assert plugins.folders() == []
    with pytest.raises(BadInput, match=r"The plug-in overlap \(overlap-search 1\.0\) is broken: .* pip uninstall ov"):
        raise found.broken(found.problem)
    if ("retriever", "overlap") in found.choices:
        done = harness("run", *TOY, "retriever=overlap", "tracking=none")
        assert done.code == 2
        assert problem in done.err
    assert harness("run", *TOY, "tracking=none", "retriever=bm25", "--cfg=job").code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"retriever__py": "import nothing_like_it"}, "No module named 'nothing_like_it'"),
        ({"retriever__py": "def ("}, "SyntaxError"),
        ({"retriever__py": plugin_wheels.OVERLAP.replace("retriever/overlap", "retriever/bm25")}, "the harness has a"),
        ({"retriever__py": plugin_wheels.OVERLAP.replace("recorded_as", "name")}, "does not declare `recorded_as"),
        ({"retriever__py": plugin_wheels.OVERLAP.replace("retriever/overlap", "X")}, "does not declare `recorded_as"),
        ({"retriever__py": plugin_wheels.OVERLAP.replace("retriever/", "encoder/")}, "is not of the group retriever"),
        ({"retriever__py": "x = 1"}, "has no class 'Overlap'"),
        ({"overlap__yaml": "overlap: {_target_: os.getcwd}"}, "'os.getcwd' is not allowed"),
        ({"overlap__yaml": "# @package _global_\nhydra: {verbose: true}\nretriever: {}"}, "sets hydra.verbose"),
        ({"overlap__yaml": "# @package _global_\nplugins: {allow: [os]}\nretriever:\n  x: {_target_: retriever/python, "
                           "function: 'os:getcwd'}"}, "the module os is not allowed"),
    ],
)  # fmt: skip
def test_a_plugin_that_breaks_when_it_is_used_is_named_and_harms_nobody(site, harness, toy, files, message):
    site(changed(**files))
    done = harness("run", *TOY, "retriever=overlap", "tracking=none")
    assert done.code == 2, done.err
    assert message in done.err
    assert "Traceback" not in done.err
    assert harness("run", *TOY, "tracking=none", "--cfg=job").code == 0


def test_two_plugins_with_the_same_choice_are_both_named(site):
    site()
    files = {path.replace("overlap_search", "second"): text for path, text in plugin_wheels.FILES.items()}
    site(files, name="second-search", entry="second = second")
    problems = [plugin.problem for plugin in plugins.installed_plugins()]
    assert problems == [
        "the plug-in second (second-search 1.0) also brings retriever=overlap",
        "the plug-in overlap (overlap-search 1.0) also brings retriever=overlap",
    ]


@pytest.mark.slow
def test_a_plugin_brings_components_of_every_kind(site, harness, toy, tracker):
    site(plugin_wheels.every_kind(), name="every-kind", entry="every = every_kind")
    groups = list(plugin_wheels.EVERY_YAML)
    words = ["retriever=hybrid", "format=json", "experiment_name=e", *(f"{group}=mine" for group in groups)]
    run = harness("run", *words).json
    logged = tracker.run(run["run_id"])
    assert {logged.params[group] for group in groups} == {"mine"}
    assert logged.tags["plugins"] == "every (every-kind 1.0)"
    assert harness("reproduce", f"run={run['run_id']}", "format=json").json["reproduced"]
