"""Prepare the pages of the site: docs/, CONTRIBUTING.md, CHANGELOG.md, and the reference that is generated.

MkDocs reads one folder, so a copy of all pages is written beside the site and removed at the end. In the copy, links
to files outside docs/ lead to the page of the site that shows the file, or else to the repository.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from pymdownx.slugs import slugify

sys.path.insert(0, str(Path(__file__).parent))
import reference

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SHOWN = {  # file of the repository -> page of the site
    "README.md": "index.md",
    "README.ko.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
LINK = re.compile(r"(?P<label>\[(?:[^\[\]]|\[[^\[\]]*\])*\])\((?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
FENCE = re.compile(r"^ *```")


@event_priority(100)  # before the plug-ins read the config
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    staged = Path(f"{config.site_dir}.source")
    if Path(config.docs_dir).parent == staged:  # the build of another language, with the same config
        return config
    _made.add(staged)
    pages = reference.pages()
    _write(staged / "pages", dict(_contents(pages, config.extra["repository"])))
    _write(staged / "modules", {path: (ROOT / path).read_bytes() for path in reference.modules()})
    config.docs_dir = str(staged / "pages")
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [str(staged / "modules")]
    config.nav = [{"Reference": reference.navigation(pages)} if "Reference" in one else one for one in config.nav]
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")  # GitHub's anchors, also of Korean headings
    return config


def on_shutdown() -> None:
    for folder in _made:
        shutil.rmtree(folder, ignore_errors=True)


_made: set[Path] = set()


def _write(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Make a folder contain these files alone. Leave equal files as they are, so that a server sees no change."""
    for old in [path for path in folder.rglob("*") if path.is_file()]:
        if old.relative_to(folder).as_posix() not in contents:
            old.unlink()
    for name, content in contents.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def _contents(pages: Mapping[str, str], repository: str) -> Iterator[tuple[str, bytes]]:
    """Yield path in the site's folder -> content."""
    for path in (*sorted(DOCS.rglob("*")), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"):
        if path.is_file():
            content = path.read_bytes()
            if path.suffix == ".md":
                content = page(content.decode("utf-8"), path, repository).encode("utf-8")
            yield _place(path), content
    for place, text in pages.items():
        yield place, page(text, DOCS / place, repository).encode("utf-8")
    for path in (Path(__file__).with_name("site.css"), Path(__file__).with_name("site.js")):
        yield path.name, path.read_bytes()


def _place(path: Path) -> str:
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return SHOWN[path.name]


def page(text: str, path: Path, repository: str) -> str:
    """Return the Markdown of a file in the repository as a page of the site.

    Lists are indented by four columns, which Python-Markdown needs, and end at comments, which it takes as text.
    """
    text = re.sub(r"^<!--.*?-->\n|^(한국어|English): \[[^\n]*\n\n", "", text, flags=re.M | re.S)
    text = LINK.sub(lambda link: _link(link, path, repository), text)
    lines, fenced = [], False
    for line in text.splitlines():
        fenced ^= bool(FENCE.match(line))
        lines.append(line if fenced else re.sub(r"^ {2,3}(?=\S)", "    ", line))
    return "\n".join(lines) + "\n"


def _link(link: re.Match[str], path: Path, repository: str) -> str:
    """Return a link as the site needs it. Leave a link to nothing as it is: the build then names it."""
    target = Path(os.path.normpath(path.parent / link["target"]))
    if (target.is_relative_to(DOCS) and path.is_relative_to(DOCS)) or not target.exists():
        return link[0]
    inside = target.relative_to(ROOT).as_posix()
    if target.is_relative_to(DOCS) or inside in SHOWN:
        there = _place(target).replace(".ko.md", ".md")  # a page leads to pages in its own language
        place = posixpath.relpath(there, posixpath.dirname(_place(path)) or ".")
        return f"{link['label']}({place}{link['anchor'] or ''})"
    if not repository:
        return link["label"][1:-1]
    kind = "tree" if target.is_dir() else "blob"
    return f"{link['label']}({repository}/{kind}/HEAD/{inside}{link['anchor'] or ''})"
