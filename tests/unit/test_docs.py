"""The documentation says what the code says: generated parts, links, settings, events, metrics, tests."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from sink.config.model import aliases
from sink.config.rules import FOREIGN, RULES
from sink.devtools import page_parts
from tests.docs import reasons
from tests.one_sink import load

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
FOREIGN_PAGES = {
    DOCS / "comparison.md",
    DOCS / "configuration.md",
    DOCS / "how-to" / "names.md",
    DOCS / "hudi-settings.md",
}
"""Pages that name settings of other projects; the second one and the last are generated."""

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
DOTTED = re.compile(r"([a-z][a-z0-9_-]*(?:\.[a-z0-9_-]+)+)(?:=\S+)?")
NOTED = re.compile(r"""(?:\bnote|_note|LOG\.\w+)\(\s*(?:level, )?"([a-z_]+\.[a-z_]+)["']""")
PASSED_THROUGH = ("kafka.", "spark.", "hoodie.")
FILES = re.compile(r".*\.(md|py|json|yaml|yml|properties|service|env|xml|log|parquet|toml|cfg)")


def _id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


@cache
def _events() -> set[str]:
    sources = [*(ROOT / "sink").rglob("*.py"), *(ROOT / "coordination").rglob("*.py")]
    return {event for source in sources for event in NOTED.findall(source.read_text())}


@cache
def _tests() -> set[str]:
    names: set[str] = set()
    for source in (ROOT / "tests").rglob("test_*.py"):
        names |= set(re.findall(r"^\s*def (test_\w+)\(", source.read_text(), re.MULTILINE))
    return names


@cache
def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    explicit = re.findall(r'<a id="([\w-]+)"></a>', page.read_text())
    return {*explicit, *(re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings)}


def _is_setting(name: str) -> bool:
    return name in aliases() or name in RULES or name in FOREIGN or name.startswith(PASSED_THROUGH)


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


@pytest.mark.parametrize("name", page_parts.PARTS)
def test_a_generated_part_is_what_the_code_gives_and_a_change_of_it_is_seen(name: str) -> None:
    page = (ROOT / name).read_text()
    assert page == page_parts.render(name, page), "run `make docs`"
    for part in page_parts.PARTS[name].values():
        second = part().splitlines()[1]
        assert page_parts.render(name, page.replace(second, second + " drift")) == page


def test_the_table_of_reasons_has_those_that_the_sink_gives() -> None:
    page = reasons.PAGE.read_text()
    assert page == reasons.with_reasons(page), "run `make docs`"


def test_a_page_without_a_part_is_refused() -> None:
    with pytest.raises(ValueError, match="phases"):
        page_parts.render("docs/how-it-works.md", "# How it works\n")


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(_prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked_page = (page.parent / path).resolve() if path else page
        if not linked_page.exists() or (anchor and anchor not in _anchors(linked_page)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", [page for page in PAGES if page not in FOREIGN_PAGES], ids=_id)
def test_every_setting_that_is_named_exists(page: Path) -> None:
    unknown = []
    for code in CODE.findall(_prose(page)):
        match = DOTTED.fullmatch(code)
        if match is None or FILES.fullmatch(code):
            continue
        name = match[1]
        if not (_is_setting(name) or _is_module(name) or name in _events()):
            unknown.append(code)
    assert unknown == []


@pytest.mark.parametrize("language", ["yaml", "properties"])
def test_the_configurations_shown_can_be_used_and_mean_the_same(language: str, tmp_path: Path) -> None:
    shown = dict(FENCE.findall((DOCS / "getting-started.md").read_text()))
    configuration = tmp_path / f"orders.{language}"
    configuration.write_text(shown[language])
    settings = load(configuration, {})
    assert settings.interval_ms == 10_000
    assert (settings.name, settings.partition_fields) == ("orders", ("country",))


def test_the_query_shown_is_the_one_that_the_demo_tells_and_its_test_runs() -> None:
    from sink.devtools.demo.tables import DemoTable

    shown = dict(FENCE.findall((DOCS / "getting-started.md").read_text()))["python"]
    table = DemoTable(Path("/demo"))
    expected = table.query.replace(table.base_path, "/data/tables/orders")
    assert ast.dump(ast.parse(shown)) == ast.dump(ast.parse(expected))


def test_every_name_in_the_query_shown_exists() -> None:
    import duckdb
    import hudi
    import pyarrow

    shown = dict(FENCE.findall((DOCS / "getting-started.md").read_text()))["python"]
    owners = (duckdb, pyarrow.Table, pyarrow, hudi.HudiTableBuilder, hudi.HudiTable)
    names = {node.attr for node in ast.walk(ast.parse(shown)) if isinstance(node, ast.Attribute)}
    assert {name for name in names if not any(hasattr(owner, name) for owner in owners)} == set()
    assert {"read", "build"} <= names


def test_the_settings_shown_for_other_writers_name_the_locks_own_place() -> None:
    from sink.hudi.specification import DEFAULT_LOCK_BASE_PATH, LOCK_BASE_PATH, LOCK_KEY

    shown = dict(FENCE.findall((DOCS / "runbook.md").read_text()))["properties"]
    assert f"{LOCK_BASE_PATH}={DEFAULT_LOCK_BASE_PATH}\n" in shown
    assert f"{LOCK_KEY}=<table name>\n" in shown


def test_the_runbook_explains_every_event_and_no_other() -> None:
    table = (DOCS / "runbook.md").read_text().partition("## The log")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| <a ")]
    explained = {event for row in rows for event in CODE.findall(row)}
    assert explained == _events()


def test_every_event_has_an_anchor_in_the_runbook_where_its_log_line_leads_to() -> None:
    from sink.telemetry.logs import RUNBOOK, runbook_page

    page = ROOT / RUNBOOK
    anchors: dict[str, set[str]] = {}
    for line in page.read_text().splitlines():
        for anchor in re.findall(r'<a id="([\w-]+)"></a>', line):
            anchors[anchor] = set(CODE.findall(line.split("|")[1]))
    without_anchor = [
        event for event in _events() if event not in anchors.get(runbook_page(event).partition("#")[2], ())
    ]
    assert without_anchor == []


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_every_test_that_is_named_exists(page: Path) -> None:
    named = {code for code in CODE.findall(_prose(page)) if re.fullmatch(r"test_\w+", code)}
    assert named - _tests() == set()


WENT = DOCS / "decisions" / "0066" / "went"
"""Lists of removed things, tests too."""


@pytest.mark.parametrize("file", [file for file in sorted(DOCS.rglob("*.tsv")) if file.parent != WENT], ids=_id)
def test_every_test_that_data_names_exists(file: Path) -> None:
    named = set(re.findall(r"\b(test_\w+)\b(?!\.py|/)", file.read_text()))
    assert named - _tests() == set()


GENERATED = re.compile(r"^<!-- begin: [\w-]+ -->\n.*?^<!-- end: [\w-]+ -->$", re.MULTILINE | re.DOTALL)
INDENTED_FENCE = re.compile(r"^ +```\w*\n.*?^ +```$", re.MULTILINE | re.DOTALL)
WIDEST = 120
NOT_WRAPPED = re.compile(r"\||#|\[[^]]+\]:|<!--|- Command: `")
"""Rows of tables, headings, links' targets, comments, and the commands that benchmarks write."""


@pytest.mark.parametrize("page", [page for page in PAGES if page != DOCS / "configuration.md"], ids=_id)
def test_prose_is_wrapped_so_that_a_change_can_be_read(page: Path) -> None:
    """Prose is wrapped by sentence or at 120 columns, but for links and code, which cannot be broken."""
    prose = INDENTED_FENCE.sub("", GENERATED.sub("", _prose(page)))
    lines = [line for line in prose.splitlines() if len(line) > WIDEST and not NOT_WRAPPED.match(line.lstrip())]
    assert [line for line in lines if not (LINK.search(line) or any(" " in code for code in CODE.findall(line)))] == []


def test_the_help_texts_are_those_of_the_program() -> None:
    from tests.docs import help as texts
    from tests.docs.pages import COMMANDS, helped, with_help

    page = COMMANDS.read_text()
    assert helped(page) == set(texts.commands())
    assert _words(page) == _words(with_help(page, texts.help_of)), "run `python -m tests.docs.help`"


def _words(page: str) -> list[str]:
    """Returns the words but for those that versions of typer change: a value's name, its default, where lines end."""
    return re.sub(r"<[^>\n]*>|\[[^]]*\]|\.\.\.", "", page).split()


def test_what_the_tutorial_and_the_commands_show_can_be_played_again() -> None:
    from tests.docs.pages import COMMANDS, TUTORIAL, with_outputs
    from tests.docs.samples import HERE

    played: list[str] = []
    for page in (COMMANDS, TUTORIAL):
        with_outputs(page.read_text(), lambda shown: played.append(shown.typed) or "")  # type: ignore[func-returns-value]
    assert HERE in TUTORIAL.read_text()
    assert {command.split()[1] for command in played if command.startswith("sink ")} >= {"demo", "infer", "audit"}


def test_the_picture_is_made_of_what_the_demo_shows() -> None:
    from sink.devtools.demo.view import Screen
    from tests.docs.picture import RecordingScreen

    assert issubclass(RecordingScreen, Screen)
    assert "killed" in (DOCS / "demo.svg").read_text()


def test_every_file_and_name_of_the_tour_exists() -> None:
    named = re.findall(r"\]\(\.\./([\w/]+\.py)\):\s+`(\w+)(?:\.(\w+))?`", (DOCS / "tour.md").read_text())
    assert len(named) > 20
    missing = []
    for path, name, method in named:
        defined = re.findall(r"^ *(?:def|class) (\w+)", (ROOT / path).read_text(), re.MULTILINE)
        missing += [f"{path}: {symbol}" for symbol in (name, method) if symbol and symbol not in defined]
    assert missing == []


def test_every_figure_of_the_promises_stands_on_the_page_that_it_leads_to() -> None:
    figures = re.findall(r"\[(\d[\d.,]*)(?: s| kills)?\]\(([\w-]+\.md)#[\w-]+\)", (DOCS / "promises.md").read_text())
    assert len(figures) > 5
    assert [figure for figure, page in figures if figure not in (DOCS / page).read_text()] == []


def test_every_page_is_in_the_sites_navigation() -> None:
    """`make site` checks this too, with tools that the tests do not need."""
    from tests.docs import mermaid  # the site imports it from the product

    assert callable(mermaid.script)
    named = set(re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page.parent.name != "decisions"}
    assert pages - named == set()


def test_every_page_and_every_decision_is_in_its_index() -> None:
    for index in (DOCS / "README.md", DOCS / "decisions" / "README.md"):
        listed = set(LINK.findall(index.read_text()))
        pages = {page.name for page in index.parent.glob("*.md")} - {"README.md"}
        assert pages - listed == set()


def test_decisions_are_numbered_without_a_gap_and_say_what_and_why() -> None:
    decisions = {int(path.name[:4]): path for path in (DOCS / "decisions").glob("[0-9]*.md")}
    assert sorted(decisions) == list(range(1, len(decisions) + 1))
    for number, decision in sorted(decisions.items()):
        text = decision.read_text()
        assert decision.name.startswith(f"{number:04d}-")
        assert text.startswith(f"# {number}. ")
        assert "**Decision.**" in text
        assert "**Why.**" in text
        assert len(text.splitlines()) <= 40, f"{decision.name}: a decision is short"


@pytest.mark.parametrize("number", ["0072", "0073"])
def test_what_the_docs_forbid_has_a_test_or_a_reason_why_nothing_refuses_it(number: str) -> None:
    _, *rows = (DOCS / "decisions" / number / "forbidden.tsv").read_text().splitlines()
    answers = dict(row.split("\t") for row in rows)
    assert [what for what, answer in answers.items() if not re.search(r"`test_\w+`|\bnone\b", answer)] == []
