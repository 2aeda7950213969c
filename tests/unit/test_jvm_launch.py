"""Settings and options on their way to a JVM, and who can read them."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import javaproperties
import pytest
from pyspark import SparkConf

from coordination.errors import ConfigError
from sink.clients.java import launch as jvm_launch
from sink.clients.java.installation import find_java
from sink.clients.java.launch import JAVA_OPTIONS, launch
from sink.clients.java.options import split_options

SECRET = "c0rrect-horse"


class Launcher:
    """Stands in for PySpark's launcher: keeps what it is handed, and what the files in it hold then."""

    def __init__(self) -> None:
        self.command: list[str] = []
        self.settings: dict[str, str] = {}
        self.options: list[str] = []
        self.files: dict[Path, int] = {}

    def __call__(self, conf: SparkConf | None, _output: Any) -> SimpleNamespace:
        pairs = conf.getAll() if conf else ()
        self.command = [*(f"{name}={value}" for name, value in pairs), *shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])]
        file = Path(self.command[self.command.index("--properties-file") + 1])
        self.settings = javaproperties.loads(file.read_text())
        self.options = split_options(self.settings.get(JAVA_OPTIONS, ""))
        named = [file, *(Path(option[1:]) for option in self.options if option.startswith("@"))]
        self.files = {path: path.stat().st_mode & 0o777 for path in named if path.exists()}
        return SimpleNamespace(arguments=[path.read_text() for path in list(self.files)[1:]])


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Launcher:
    launcher = Launcher()
    monkeypatch.setattr(jvm_launch, "launch_gateway", launcher)
    monkeypatch.setattr(jvm_launch, "close_port", lambda _gateway: None)
    return launcher


def test_settings_and_options_of_a_jvm_are_in_files_of_its_own_user_until_it_runs(launcher: Launcher) -> None:
    option = f"-Djavax.net.ssl.trustStorePassword={SECRET}"
    conf = SparkConf(False).set("spark.driver.memory", "8g").set(JAVA_OPTIONS, f"-Duser.timezone=UTC {option}")
    conf.set("spark.ssl.keyPassword", SECRET).setAppName("sink-w1")
    gateway: Any = launch(conf, subprocess.DEVNULL)
    assert SECRET not in " ".join([*launcher.command, *launcher.options])
    assert launcher.command[:2] == ["--name", "sink-w1"]
    assert launcher.settings["spark.driver.memory"] == "8g"
    assert launcher.settings["spark.ssl.keyPassword"] == SECRET
    assert gateway.arguments == [f'"-Duser.timezone=UTC"\n"{option}"\n']
    assert set(launcher.files.values()) == {0o600}
    assert not any(path.exists() for path in launcher.files)
    assert "PYSPARK_SUBMIT_ARGS" not in os.environ


def test_a_file_of_options_that_the_user_names_keeps_its_place(launcher: Launcher, tmp_path: Path) -> None:
    gateway: Any = launch(SparkConf(False).set(JAVA_OPTIONS, f"-Da=1 @{tmp_path}/more -Da=2"), subprocess.DEVNULL)
    assert launcher.options[1] == f"@{tmp_path}/more"
    assert gateway.arguments == ['"-Da=1"\n', '"-Da=2"\n']


def test_settings_go_before_sparks_own_file_of_defaults(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.memory 3g\nspark.yarn.queue lake \\")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    launch(SparkConf(False).set("spark.driver.memory", "8g"), subprocess.DEVNULL)
    assert launcher.settings == {"spark.yarn.queue": "lake ", "spark.driver.memory": "8g"}


def test_java_options_of_sparks_own_defaults_are_in_files_too(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"{JAVA_OPTIONS} -Dpassword={SECRET}\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    gateway: Any = launch(SparkConf(False), subprocess.DEVNULL)
    assert SECRET not in " ".join([*launcher.command, *launcher.settings.values()])
    assert gateway.arguments == [f'"-Dpassword={SECRET}"\n']


@pytest.mark.parametrize(
    ("options", "reason"),
    [("-Da='1", "a quotation mark is not closed"), ("-Xss2m -Xmx4g", "Set spark.driver.memory")],
)
def test_options_that_no_jvm_takes_are_refused_without_their_values(
    launcher: Launcher, options: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        launch(SparkConf(False).set(JAVA_OPTIONS, f"-Dpassword={SECRET} {options}"), subprocess.DEVNULL)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("value", ["a b", 'quo"te', "back\\slash", "#hash", "it's", "@at", "schlüssel"])
def test_java_reads_an_option_as_it_was_written(launcher: Launcher, value: str, tmp_path: Path) -> None:
    gateway: Any = launch(SparkConf(False).set(JAVA_OPTIONS, shlex.quote(f"-Dword={value}")), subprocess.DEVNULL)
    file = tmp_path / "options"
    file.write_text(*gateway.arguments)
    command = [str(find_java().binary), f"@{file}", "-XshowSettings:properties", "-version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert f"    word = {value}\n" in shown
