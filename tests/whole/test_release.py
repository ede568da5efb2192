"""A release: one version everywhere, a changelog in its form, addresses in the package, one job that publishes."""

import re
import tomllib
from pathlib import Path

import yaml
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

ROOT = Path(__file__).resolve().parents[2]
KINDS = ["Numbers that changed", "Added", "Changed", "Fixed", "Removed"]
HOME = "https://github.com/owner/name"


def test_the_changelog_has_its_form_and_its_latest_release_is_the_version_of_package_and_citation():
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    (newest, _), *releases = sections = re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", text, re.M)
    found = {name: re.findall(r"^### (.*)", body, re.M) for name, body in sections}
    assert found == {name: [kind for kind in KINDS if kind in found[name]] for name in found}
    assert newest == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", name) for name, _ in releases)
    assert len(text.encode()) <= 12 << 10
    package = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert [package["version"], citation["date-released"]] == releases[0][0].split(" - ")
    assert citation["version"] == package["version"]


def test_a_package_has_the_addresses_of_its_repository_if_the_builder_names_it(monkeypatch):
    monkeypatch.delenv("REPOSITORY_URL", raising=False)
    readme = (ROOT / "README.md").read_text("utf-8")
    assert (core := ProjectMetadata(str(ROOT), PluginManager()).core).urls == {}
    assert core.readme == readme
    monkeypatch.setenv("REPOSITORY_URL", HOME)
    core = ProjectMetadata(str(ROOT), PluginManager()).core
    assert core.urls["Changelog"] == f"{HOME}/blob/v{core.version}/CHANGELOG.md"
    assert f"({HOME}/blob/v{core.version}/docs/" in core.readme
    assert not re.search(rf"\]\((?!#|\w+:)|!\[[^]]*\]\({HOME}/blob/", core.readme)


def test_only_the_job_that_publishes_can_ask_for_a_token():
    folder = ROOT / ".github" / "workflows"
    release, ci = (yaml.safe_load((folder / f"{name}.yml").read_text("utf-8")) for name in ("release", "ci"))
    assert release["permissions"] == ci["permissions"] == {"contents": "read"}
    [publish] = [job for job in [*release["jobs"].values(), *ci["jobs"].values()] if "permissions" in job]
    assert publish["permissions"] == {"id-token": "write"}
    assert (publish["environment"]["name"], publish["needs"]) == ("pypi", "checks")
    assert release["jobs"]["checks"]["uses"] == "./.github/workflows/ci.yml"
