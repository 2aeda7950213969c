"""Escapes, marks of direction and line feeds of strangers are shown, and not obeyed."""

from __future__ import annotations

import io
import json
import re
import sys
import unicodedata
from pathlib import Path

import pyspark
import pytest
import structlog
import typer
from prometheus_client import CollectorRegistry, Gauge
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from rich.text import Text

from coordination.errors import ConfigError
from sink import cli, worker
from sink import http as http_package
from sink.clients.java.installation import find_java
from sink.clients.spark.log import log4j_configuration
from sink.commands.common import text_table
from sink.telemetry.exposition import Exposition
from sink.telemetry.logs import configure
from sink.telemetry.shown import shown, shown_lines, shown_output
from sink.telemetry.terminal import console

HOSTILE = "a\x1b[2J\x1b]0;title\x07b\u202etxt.exe\nsink: forged\r\x9b31m\u2028\u200b\x00\ud800\U000e0041"
PLAIN = "Zürich, 東京, שלום, a\tb, 🎉, é"


MOVING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
"""Kinds of marks that change the direction of letters."""


def obeyed(text: str, but: str = "\n\t") -> set[str]:
    """Returns the characters that a terminal would obey, or not show."""
    kinds = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return {character for character in text if unicodedata.category(character) in kinds and character not in but}


def test_what_a_terminal_obeys_is_shown_and_all_else_stays() -> None:
    assert obeyed(shown(HOSTILE), but="") == set()
    assert shown("\x1b[2J\u202e\n") == "\\x1b[2J\\u202e\\n"
    assert shown(PLAIN) == PLAIN
    assert shown_lines("a\nb\x1b") == "a\nb\\x1b"


def test_every_control_and_mark_of_unicode_is_shown() -> None:
    kinds = {"Cc", "Cs", "Zl", "Zp"}
    all_marks = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) in kinds]
    assert [mark for mark in all_marks if mark != "\t" and shown(mark) == mark] == []
    directions = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.bidirectional(chr(code)) in MOVING]
    assert [mark for mark in directions if shown(mark) == mark] == []


def test_a_table_and_a_text_of_a_command_show_them(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_output():
        console().print(text_table(["name", "reason"], [(HOSTILE, "[/bold] :smile: [link=http://x]"), ("a", "b")]))
        console().print(Text(HOSTILE))
        typer.echo(HOSTILE)
        typer.echo(HOSTILE, err=True)
    output, errors = capsys.readouterr()
    assert obeyed(output + errors) == set()
    assert "[/bold] :smile: [link=http://x]" in output
    # A cell stays on its line.
    assert not [line for line in output.splitlines()[:3] if line.startswith("sink: forged")]


def test_a_sentence_of_a_command_shows_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise ConfigError(f"{HOSTILE!s}")

    monkeypatch.setattr(cli, "app", fail)
    before = sys.stdout, sys.stderr
    assert cli.main(["status"]) == 2
    assert (sys.stdout, sys.stderr) == before
    assert obeyed(capsys.readouterr().err) == set()


def test_a_sentence_of_a_worker_shows_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "a\x1b[2J\u202e.yaml"
    monkeypatch.setattr(sys, "argv", ["sink.worker", "--config", str(config)])
    assert worker.main() == 2
    errors = capsys.readouterr().err
    assert "a\\x1b[2J\\u202e.yaml" in errors
    assert obeyed(errors) == set()


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_log_shows_them(form: str) -> None:
    stream = io.StringIO()
    configure("info", form, stream=stream)
    structlog.get_logger("sink.worker").warning("sink.halted", reason=HOSTILE, names=[HOSTILE], **{HOSTILE: 1})
    (line,) = stream.getvalue().splitlines()
    assert obeyed(line, but="") == set()


def test_a_label_of_a_metric_shows_them() -> None:
    registry = CollectorRegistry()
    Gauge("a", "help", ["topic"], registry=registry).labels(topic=HOSTILE).set(1)
    text = "".join(Exposition(registry).texts())
    assert obeyed(text) == set()
    assert len(text.splitlines()) == 3


def test_json_of_a_command_escapes_them(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_output():
        typer.echo(json.dumps({"reason": HOSTILE}))
    assert json.loads(capsys.readouterr().out) == {"reason": HOSTILE}


def test_the_page_has_one_way_for_texts_into_the_document() -> None:
    page = Path(cli.__file__).parent / "http" / "page"
    for script in page.glob("*.js"):
        code = script.read_text()
        assert not [way for way in ("innerHTML", "insertAdjacent", "outerHTML", "document.write") if way in code]
    code = (page / "page.js").read_text() + (page / "detail.js").read_text()
    assert code.count("textContent =") == 1


def test_the_page_and_python_show_the_same_characters() -> None:
    page = Path(http_package.__file__).parent / "page" / "page.js"
    written = re.search(r'const OBEYED = new RegExp\("\["\n(.*?)\n  \+ "\]", "gu"\);', page.read_text(), re.DOTALL)
    assert written is not None
    ranges = re.sub(r'^\s*\+ "|"$', "", written[1], flags=re.MULTILINE).replace("\n", "").replace(r"\\", "\\")
    pattern = re.sub(r"\\u\{([0-9a-f]+)\}", lambda code: rf"\U{code[1]:0>8}", ranges)
    of_page = re.compile(f"[{pattern}]")
    every = [chr(code) for code in range(sys.maxunicode + 1)]
    assert [mark for mark in every if bool(of_page.match(mark)) != (shown(mark) != mark)] == []


def test_sparks_log_shows_none_of_them(tmp_path: Path) -> None:
    log, configuration = tmp_path / "spark.log", tmp_path / "log4j2.properties"
    configuration.write_text(log4j_configuration(log))
    hostile = "a\x1b[2J\u202e\x9b\u3164\U000e0041\nforged\tb"
    options = ["-Xmx64m", f"-Dlog4j2.configurationFile={configuration}"]
    jars, java = str(Path(pyspark.__file__).parent / "jars" / "*"), str(find_java().binary)
    port = launch_gateway(classpath=jars, javaopts=options, die_on_exit=True, java_path=java)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        error = gateway.jvm.java.lang.RuntimeException(hostile)
        gateway.jvm.org.apache.logging.log4j.LogManager.getLogger("x").warn(hostile, error)
    finally:
        gateway.shutdown()
    first, *others = log.read_text().splitlines()
    assert first.endswith("WARN x a?[2J?????forged\tb")
    assert others[:2] == ["java.lang.RuntimeException: a?[2J????", "forged\tb"]
    assert obeyed(log.read_text()) == set()
