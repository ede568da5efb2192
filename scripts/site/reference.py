"""Generate the pages of the reference from the code and its configs: commands, components, measures, Python."""

from __future__ import annotations

import inspect
import re
import typing
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import harness
from harness import api, cli
from harness.config import manual, yaml_files
from harness.config.check import primary
from harness.config.command_list import COMMANDS, GROUPS, PRIMARY
from harness.config.components import argument_keys, target_class
from harness.config.help import LAST, REFUSED
from harness.config.manual import Entry
from harness.config.schema import REQUIRED, Key, Role, keys, type_text
from harness.measures import ranking_measures
from harness.measures.judged import Judged
from harness.measures.measures import LONGEST
from harness.measures.ranking_measures import MEASURES, Measure, MeasureFamily

ROOT = Path(__file__).resolve().parents[2]
CLASSES = {  # heading -> what it describes
    "Results": ("CommandResult", "Compared", "Dataset", "Evaluation", "Hits", "Result"),
    "Errors": ("BadInput", "Failed"),
}
PROTOCOLS = ("Retriever", "Fusion", "Reranker", "Document", "Query", "Turn", "Ranking")
BLANK = "\n\n"  # between the paragraphs of a docstring
NEEDS = {
    "": "labels",
    "shown": "labels made of evidence, from `dataset=testset`, `chunked` or `frozen`",
    "holes": "labels that say which documents were judged",
}


def pages() -> dict[str, str]:
    """Return path -> Markdown of every generated page."""
    found = {"reference/index.md": _overview(), "reference/commands/index.md": _command_line()}
    found |= {f"reference/commands/{_file(command)}": _command(command) for command in COMMANDS}
    found["reference/components/index.md"] = _component_list()
    found |= {f"reference/components/{_group_file(group)}": _component(group) for group in _groups()}
    return found | {"reference/measures.md": _measures(), "reference/python.md": _python()}


def modules() -> list[str]:
    """Return the paths of the modules that the page on Python describes, and of the packages that they are in."""
    names = {"harness.api", "retrievers.base"}
    names |= {getattr(harness, name).__module__ for group in CLASSES.values() for name in group}
    paths = [Path(*name.split(".")).with_suffix(".py") for name in sorted(names)]
    packages = {folder / "__init__.py" for path in paths for folder in path.parents if folder.name}
    return [path.as_posix() for path in (*sorted(packages), *paths)]


def navigation(found: Mapping[str, str]) -> list[Any]:
    """Return MkDocs' `nav` of the generated pages."""

    commands = [{heading: [f"reference/commands/{_file(one)}" for one in group]} for heading, group in GROUPS.items()]
    return [
        "reference/index.md",
        {"Commands": ["reference/commands/index.md", *commands]},
        {"Components": [path for path in found if path.startswith("reference/components/")]},
        {"Measures": "reference/measures.md"},
        {"Environment variables": "environment.md"},
        {"Python": "reference/python.md"},
    ]


def _overview() -> str:
    return f"""# Reference

These pages are generated from the code and its configs, so they say what `harness COMMAND --help` says.

- [Commands](commands/index.md): all {len(COMMANDS)} commands with their keys, flags and exit codes.
- [Components](components/index.md): datasets, retrievers, gates and all other choices, with their keys.
- [Measures](measures.md): {len(MEASURES)} measures of ranked lists. [Measures, exactly](../measures.md) says more.
- [Files of a run](../runs.md): what each run writes to its folder and to MLflow.
- [Environment variables](../environment.md): what the harness reads from the environment.
- [Python](python.md): functions, results and protocols. [From Python](../python.md) is the guide.
"""


# Commands


def _file(command: str) -> str:
    return f"{command.replace(' ', '-')}.md"


def _command_line() -> str:
    head, tables = ("command", "what it does"), ""
    for heading, group in GROUPS.items():
        rows = [(f"[`{name}`]({_file(name)})", one.about) for name, one in group.items()]
        tables += f"## {heading}\n\n{_table(head, rows)}\n"
    codes = re.findall(r"(\d+) ([^;.]+)", str(cli.__doc__).partition("Exit codes: ")[2])
    return f"""# Commands

```
harness COMMAND [KEY=VALUE ...]
```

Without a command, `harness` suggests what to do next in the working folder.

{tables}## Flags

`harness.yaml` in the working folder sets defaults for all commands; the command line overrides them.

{_table(("flag", "what it does"), FLAGS.items())}
## Exit codes

{_table(("code", "meaning"), [(f"`{code}`", meaning) for code, meaning in codes])}"""


FLAGS = {
    "`--help`": "prints the command's keys and choices, with the values that apply in this folder",
    "`--cfg job`": "prints the whole config of the command, and stops",
    "`--config-dir=FOLDER`": "adds a folder of your own components and recipes, with the layout of `conf/`",
    "`-m`": "with `run`: runs every combination of several values, as `sweep` does",
    "`--version`": "without a command: prints the version",
    "`-sc install=bash`": 'without a command: prints a script for tab completion: `eval "$(harness -sc install=bash)"`',
}


def _command(command: str) -> str:
    entry, known = COMMANDS[command], keys(COMMANDS[command].config)
    own = manual.manual(primary(command))
    groups = {group: one for group, one in own.groups.items() if (command, group) not in REFUSED}
    plain = {key: one for key, one in own.keys.items() if key.partition(".")[0] not in own.groups}
    inner = {key: one for key, one in own.keys.items() if key not in plain}
    order = dict.fromkeys([*(key for key in entry.first if key in plain), *sorted(plain, key=LAST.__contains__)])
    parts = [f"# harness {command}\n", f"{entry.about}\n"]
    parts += ["```", f"harness {command} {entry.example}".rstrip(), "```\n"]
    parts += ["## Output\n", _output(command, known), "## Keys\n", _keys({key: plain[key] for key in order}, known)]
    if groups:
        rows = [
            (f"[`{group}`](../components/{_group_file(group)})", f"`{one.value}`", _choices(group), one.comment)
            for group, one in groups.items()
        ]
        parts += ["## Components and recipes\n", "`GROUP=CHOICE` chooses one. Each choice has its own keys.\n"]
        parts += [_table(("group", "default", "choices", ""), rows)]
        parts += [_keys(inner, known)] if inner else []
    if guides := _guides(command):
        parts += ["## Guides\n", *(f"- [{title}](../../{name})" for name, title in guides.items())]
    return "\n".join(parts) + "\n"


def _output(command: str, known: Mapping[str, Key]) -> str:
    """Return what a command prints and what its function returns. Tables to paste are among the values of `format`."""
    name = primary(command)
    pasted = [one for one in known["format"].values if one not in ("text", "json")]
    lines = ["The command prints a report. With `format=json`, it prints the same facts as one JSON document."]
    if pasted:
        *first, last = (f"`{one}`" for one in pasted)
        choices = f"{', '.join(first)} or {last}" if first else last
        lines += [f"With `format` set to {choices}, it prints only the table, to paste elsewhere."]
    result = f"[`{_returned(command)}`](../python.md#results)"
    lines += [f"From Python, `harness.{name}(...)` prints nothing and returns a {result}."]
    return "\n".join(lines) + "\n"


def _returned(command: str) -> str:
    """Return the name of the class that the function of a command returns."""
    hint = typing.get_type_hints(api)[primary(command)]
    return str(typing.get_args(hint)[1].__name__)


def _guides(command: str) -> dict[str, str]:
    """Return path -> title of the pages in docs/ that show a command most often."""
    titles, counts = {}, Counter[str]()
    for path in sorted((ROOT / "docs").rglob("*.md")):
        text, name = path.read_text("utf-8"), path.relative_to(ROOT / "docs").as_posix()
        titles[name] = text.partition("\n")[0].lstrip("# ")
        words = re.findall(r"harness ([a-z]+(?: [a-z]+)?)", text)
        if ".ko." not in name and (
            shown := sum((one if one in COMMANDS else one.split()[0]) == command for one in words)
        ):
            counts[name] = shown
    return {name: titles[name] for name, _ in counts.most_common(6)}


def _choices(group: str) -> str:
    return ", ".join(f"`{choice}`" for choice in manual.choice_files(group))


def _keys(entries: Mapping[str, Entry], known: Mapping[str, Key]) -> str:
    rows = []
    for key, entry in entries.items():
        about = known.get(key)
        default = "required" if entry.value == REQUIRED else f"`{entry.value}`"
        rows.append((f"`{key}`", _type(about) if about else "", default, entry.comment + _roles(about)))
    return _table(("key", "type", "default", "meaning"), rows)


def _type(key: Key) -> str:
    if key.values:
        among = " \\| ".join(f"`{one}`" for one in key.values)
        empty = " \\| `null`" if type(None) in typing.get_args(key.hint) else ""
        return ("a list of " if key.is_texts else "") + among + empty
    text = re.sub(r"<class '[\w.]+'>", "a component", type_text(key.hint))
    return ", ".join(filter(None, (text, _bounds(key))))


def _bounds(key: Key) -> str:
    why = f" ({key.why})" if key.why else ""
    least, most = (f"{one:,.15g}" if one is not None else "" for one in (key.least, key.most))
    if key.most is None:
        return f"at least {least}" if least else ""
    if key.least is None:
        return f"at most {most} characters{why}"
    if key.least == -key.most and why:  # an argument of a component, whose class also checks the smallest value
        return f"at most {most}{why}"
    return f"{least} to {most}{why}"


def _roles(key: Key | None) -> str:
    return ". Only the command line may set it." if key and Role.ACTS in key.roles else ""


# Components


def _groups() -> dict[str, dict[str, Entry]]:
    """Return group -> command -> the command's default choice, in the order of `harness run`."""
    found: dict[str, dict[str, Entry]] = {}
    for name in ("run", *PRIMARY):
        for group, entry in manual.manual(name).groups.items():
            found.setdefault(group, {})[name] = entry
    return found


def _component_list() -> str:
    rows = [(f"[`{group}`]({_group_file(group)})", _choices(group)) for group in _groups()]
    return f"""# Components

Everything that can be replaced is a component. `GROUP=CHOICE` chooses one, and `GROUP.KEY=VALUE` sets one of its keys.
[Contributing](../../../CONTRIBUTING.md) and [Retrievers of your own](../../own_retrievers.md) show how to add one.

{_table(("group", "choices"), rows)}"""


def _group_file(group: str) -> str:
    return "vector_index.md" if group == "index" else f"{group}.md"  # index.md is the list


def _component(group: str) -> str:
    users = [
        f"[`{name}`](../commands/{_file(name.replace('_', ' '))}) (default `{one.value}`)"
        for name, one in _groups()[group].items()
        if (name, group) not in REFUSED
    ]
    parts = [f"# {group}\n", f"Used by {', '.join(users)}.\n"]
    for choice, path in manual.choice_files(group).items():
        parts += [f"## {choice}\n", f"{manual.read_manual(path).about}\n"]
        source = path.relative_to(ROOT).as_posix()
        parts += ["```", f"{group}={choice}", "```\n", f"Config: [`{source}`](../../../{source})\n"]
        parts += [_keys(manual.manual_keys(group, choice), _typed(group, choice))]
    return "\n".join(parts)


def _typed(group: str, choice: str) -> dict[str, Key]:
    """Return dotted key -> type of the arguments of a choice's components, and of the plain keys that it sets."""
    path = manual.choice_files(group)[choice]
    page, found = manual.read_manual(path), dict(keys(COMMANDS["sweep"].config))
    for base in page.bases:
        found |= _typed(group, base.partition("@")[0])
    node = yaml_files.load_yaml(path)
    return found | dict(_arguments(node if page.package else {group: node}, ""))


def _arguments(node: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Key]]:
    for name, value in node.items():
        if isinstance(value, Mapping):
            yield from _arguments(value, f"{prefix}{name}.")
    if "_target_" in node:
        for name, key in argument_keys(target_class(node, prefix)).items():
            yield f"{prefix}{name}", key
            yield f"{prefix}runtime.{name}", key


# Measures


def _measures() -> str:
    rows = [
        (f"[`{name}`](#{name})", _definition(name, one).partition("\n")[0], one.family.value, NEEDS[one.reads])
        for name, one in MEASURES.items()
    ]
    parts = [
        "# Measures\n",
        f"`ndcg@10` reads only the first 10 documents of a list. The cut-off after `@` is at most {LONGEST:,}. Without",
        "it, a measure reads the whole list. [Measures, exactly](../measures.md) defines hits, ranks and grades.\n",
        "A run leaves out a measure, and says why, if the labels lack what it needs, if it applies to no query, or if",
        "the lists end before its cut-off.\n",
        f"{str(ranking_measures.__doc__).strip().rpartition(BLANK)[2]}\n",
        _table(("measure", "definition", "mean over", "needs"), rows),
    ]
    for name, one in MEASURES.items():
        parts += [f"## {name}\n", _definition(name, one)]
        parts += ["This measure takes no cut-off.\n"] if one.whole or one.family in _WHOLE else []
    return "\n".join(parts)


_WHOLE = (MeasureFamily.ABSTENTION, MeasureFamily.POOLED)


def _definition(name: str, one: Measure) -> str:
    """Return the docstring of a measure. A measure without its own function is a variant of another measure."""
    base = one.compute.__name__.rstrip("_")
    if name == base:
        return f"{inspect.getdoc(one.compute)}\n"
    if one.lists:
        change = str(inspect.getdoc(getattr(Judged, one.lists))).partition(BLANK)[0]
        return f"Like [`{base}`](#{base}), but {change[0].lower()}{change[1:]}\n"
    return f"Like [`{base}`](#{base}), but the mean is over {one.family.value}.\n"


# Python


def _python() -> str:
    types = typing.get_type_hints(api)
    rows = [
        (
            f"[`harness.{primary(name)}`](commands/{_file(name)})",
            f"`{typing.get_args(types[primary(name)])[1].__name__}`",
        )
        for name in COMMANDS
    ]
    parts = [f"# Python\n\n{inspect.getdoc(api)}\n", "## Commands\n", _table(("function", "returns"), rows)]
    parts += ["## Data and scores\n", "::: harness.api.load_dataset\n", "::: harness.api.evaluate\n"]
    for heading, names in CLASSES.items():
        parts += [f"## {heading}\n", *(f"::: {_path(getattr(harness, name))}\n" for name in names)]
    parts += ["## Protocols\n", "[Retrievers of your own](../own_retrievers.md) implement these.\n"]
    return "\n".join([*parts, *(f"::: retrievers.base.{name}\n" for name in PROTOCOLS)])


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _table(head: Sequence[str], rows: typing.Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; "" without rows."""
    lines = [" | ".join(_cell(one) for one in row) for row in (head, ["---"] * len(head), *rows)]
    return "".join(f"| {line} |\n" for line in lines) if len(lines) > 2 else ""


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", "\\|", " ".join(text.split()))
