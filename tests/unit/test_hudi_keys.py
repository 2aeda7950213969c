"""Each name that Hudi reads is refused, checked or harmless, by one list that no way into a write passes by."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from coordination.errors import ConfigError
from sink.clients.spark.session import _pack_packages
from sink.config import Settings, load_configuration
from sink.config.hudi_keys import INT_MAX, KEYS, REASONS, accepted, notes
from sink.config.model import aliases
from sink.config.rules import FOREIGN
from sink.config.spelling import mistaken_for
from sink.devtools import hudi_keys as devtool
from sink.hudi.options import commit_options, service_options
from sink.telemetry.redaction import Properties
from tests.one_sink import load
from tests.unit.config_kit import MINIMAL

REFUSED = sorted(key.name for key in KEYS.values() if key.kind == "refused" and key.name.startswith("hoodie."))
ACCEPTED = sorted(key.name for key in KEYS.values() if key.kind != "refused" and not key.values.startswith("setting "))
FAMILIES_WITHOUT_FILES = {"catalogue-sync", "metrics", "log-text"}
"""Reasons of harmless names that touch no file of a table, and need no trial."""


def settings_with(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> Settings:
    path = tmp_path / "sink.yaml"
    path.write_text(MINIMAL + text)
    return load(path, environ or {})


def refusal_of(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as refusal:
        settings_with(tmp_path, text, environ)
    return str(refusal.value)


def test_each_name_is_in_one_class_with_a_sentence_and_all_sentences_are_used() -> None:
    assert {key.kind for key in KEYS.values()} == {"refused", "checked", "harmless"}
    assert {key.reason for key in KEYS.values()} == set(REASONS)
    assert list(KEYS) == sorted(KEYS)
    assert len(KEYS) > 700


def test_what_is_accepted_and_touches_files_was_tried_with_a_value_that_it_may_have() -> None:
    accepted_keys = [KEYS[name] for name in ACCEPTED]
    assert [key.name for key in accepted_keys if not key.tried and key.reason not in FAMILIES_WITHOUT_FILES] == []
    assert [key.name for key in accepted_keys if key.tried and key.problem(key.tried)] == []
    assert [key.name for key in KEYS.values() if key.kind == "refused" and key.tried] == []


def test_the_lowest_number_that_is_accepted_is_the_one_that_was_tried_or_a_larger_one_changes_nothing() -> None:
    numbers = {key.name: (key.values.partition("..")[0], key.tried) for key in KEYS.values() if ".." in key.values}
    assert all(float(low) <= float(tried) for low, tried in numbers.values())


def test_every_name_that_is_refused_stops_a_configuration_at_once_and_says_why(tmp_path: Path) -> None:
    names = [name for name in REFUSED if name not in FOREIGN]
    message = refusal_of(tmp_path, "".join(f"{name}: quite-wrong\n" for name in names))
    lines = message.splitlines()
    for name in names:
        [line] = (line for line in lines if f" {name} is refused: " in line)
        assert f"{KEYS[name].sentence}. Remove it" in line
        assert ("set it to" in line) == bool(KEYS[name].values)


def test_the_value_that_the_sink_itself_uses_may_be_written_down(tmp_path: Path) -> None:
    own = {name: KEYS[name].values.split("|")[0] for name in REFUSED if KEYS[name].values}
    settings = settings_with(tmp_path, "".join(f"{name}: '{value.lower()}'\n" for name, value in own.items()))
    assert set(settings.hudi) == set(own)
    assert [name for name, value in own.items() if KEYS[name].problem(value)] == []


def test_the_values_that_were_tried_are_accepted_together(tmp_path: Path) -> None:
    tried = {name: KEYS[name].tried for name in ACCEPTED if KEYS[name].tried}
    settings = settings_with(tmp_path, "".join(f"{name}: '{value}'\n" for name, value in tried.items()))
    assert dict(settings.hudi) == tried
    for options in (commit_options(settings.table), service_options(settings.table)):
        assert tried.keys() <= options.keys()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("hoodie.clean.fileversions.retained: 0", "is not a whole number from 1 on"),
        ("hoodie.cleaner.commits.retained: -1", "is not a whole number from 1 on"),
        ("hoodie.clean.hours.retained: 1_0", "is not a whole number from 1 on"),
        (f"hoodie.clean.commits.retained: {INT_MAX + 1}", "is not a whole number from 1 on"),
        ("hoodie.keep.min.commits: ٣", "is not a whole number from 2 on"),
        ("hoodie.client.heartbeat.interval_in_ms: 1", "is not a whole number from 1000 to 600000"),
        ("hoodie.index.bloom.fpp: 1", "is not a number from 0.000000000001 to 0.5"),
        ("hoodie.index.bloom.fpp: nan", "is not a number from 0.000000000001 to 0.5"),
        ("hoodie.clean.policy: NONSENSE", "is not one of its values. Use KEEP_LATEST_COMMITS, KEEP_LATEST_FILE"),
        ("hoodie.parquet.dictionary.enabled: maybe", "is neither true nor false"),
        ("hoodie.write.lock.zookeeper.base_path: locks", "is not a znode path"),
        ("hoodie.write.lock.zookeeper.lock_key: a/b", "is not a name without slashes"),
        (
            "hoodie.datasource.hive_sync.table_properties: 'external.table.purge=true'",
            "has a property with which dropping",
        ),
    ],
)
def test_a_value_that_a_checked_name_may_not_have_is_refused(tmp_path: Path, line: str, sentence: str) -> None:
    assert f"{line.split(':')[0]} {sentence}" in refusal_of(tmp_path, f"{line}\n")


@pytest.mark.parametrize(
    ("written", "passed_on"),
    [
        ("hoodie.metadata.enable: off", "false"),
        ("hoodie.clean.policy: keep_latest_by_hours", "KEEP_LATEST_BY_HOURS"),
        ("hoodie.parquet.compression.codec: ' GZIP '", "gzip"),
        ("hoodie.clean.commits.retained: ' 3 '", "3"),
        ("hoodie.write.markers.type: direct", "DIRECT"),
    ],
)
def test_a_value_is_passed_on_as_hudi_writes_it(tmp_path: Path, written: str, passed_on: str) -> None:
    settings = settings_with(tmp_path, f"{written}\n")
    assert settings.hudi[written.split(":")[0]] == passed_on


def test_names_that_the_sinks_own_settings_stand_for_are_those_of_the_list() -> None:
    listed = {key.name: key.values.removeprefix("setting ") for key in KEYS.values() if key.reason == "own"}
    own = {name: setting for name, setting in aliases().items() if name in KEYS}
    assert listed == own
    for name in listed:
        with pytest.raises(ConfigError, match="is the setting"):
            accepted({name: "x"})


WAYS = {
    "the shared part": ("hoodie.write.schema: x\nsinks:\n  a: {}\n", {}),
    "one sink": ("sinks:\n  a:\n    hoodie.write.schema: x\n", {}),
    "nested": ("sinks:\n  a:\n    hoodie: {write: {schema: x}}\n", {}),
    "the environment": ("sinks:\n  a: {}\n", {"SINK_HOODIE_WRITE_SCHEMA": "x"}),
    "Spark": ("spark.hoodie.write.schema: x\nsinks:\n  a: {}\n", {}),
    "Hadoop": ("spark.hadoop.hoodie.write.schema: x\nsinks:\n  a: {}\n", {}),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_refused_name_is_refused_whichever_way_it_comes(tmp_path: Path, way: str) -> None:
    text, environ = WAYS[way]
    path = tmp_path / "fleet.yaml"
    path.write_text(MINIMAL.replace("target.table.name: orders", "").replace("/orders", "/{topic}") + text)
    with pytest.raises(ConfigError, match=r"hoodie\.write\.schema is refused"):
        load_configuration(path, environ)


@pytest.mark.parametrize("name", ["spark.driver.extraJavaOptions", "spark.executor.defaultJavaOptions"])
def test_a_jvm_stays_in_utc(tmp_path: Path, name: str) -> None:
    settings_with(tmp_path, f"{name}: -Xss4m -Duser.timezone=UTC\n")
    assert "Remove -Duser.timezone" in refusal_of(tmp_path, f"{name}: -Xss4m -Duser.timezone=Europe/Berlin\n")


def test_settings_that_were_changed_after_they_were_loaded_come_into_no_options(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, "")
    changed = settings.model_copy(update={"hudi": Properties({"hoodie.datasource.merge.type": "skip_merge"})})
    with pytest.raises(ConfigError, match=r"hoodie\.datasource\.merge\.type is refused"):
        changed.table  # noqa: B018 (the options come from there)


def test_any_name_below_one_that_is_open_is_refused(tmp_path: Path) -> None:
    refusal = refusal_of(tmp_path, "hoodie.record.merge.property.of.anything: x\n")
    assert "hoodie.record.merge.property.* is refused: tombstones and _hoodie_is_deleted decide" in refusal


def test_a_name_that_hudi_does_not_know_is_passed_on_with_a_note(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, "hoodie.aws.access.of.ours: x\nhoodie.metadata.enable: true\n")
    assert commit_options(settings.table)["hoodie.aws.access.of.ours"] == "x"
    [note] = notes(settings.hudi)
    assert note.startswith("hoodie.aws.access.of.ours: Hudi's own jar does not know this setting")


@pytest.mark.parametrize("name", [name for name in REFUSED if len(name) > 14 and name[-1] != "*"][::7])
def test_a_name_two_letters_from_one_of_hudis_is_refused_with_that(tmp_path: Path, name: str) -> None:
    slip = f"{name[:-1]}qx"
    assert f"Did you mean {mistaken_for(slip)}?" in refusal_of(tmp_path, f"{slip}: x\n")
    assert mistaken_for(name) is None


def test_executors_are_sent_the_list_with_the_modules_that_read_it(tmp_path: Path) -> None:
    archive = _pack_packages(tmp_path)
    script = "import sys; sys.path.insert(0, sys.argv[1]); from sink.config import hudi_keys as m; print(m.__file__)"
    completed = subprocess.run([sys.executable, "-c", script, str(archive)], capture_output=True, text=True, check=True)
    assert completed.stdout.startswith(str(archive))


def test_the_page_of_the_list_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "hudi-settings.md"
    assert page.read_text() == devtool.page(), "run `python -m sink.devtools.hudi_keys > docs/hudi-settings.md`"
    assert [name for name in KEYS if f"| `{name}` |" not in page.read_text()] == []
