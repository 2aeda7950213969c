"""The files for systemd and Docker are well formed, and agree with the package that they start."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.one_sink import load

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "docs" / "systemd" / "sink-worker@.service"
COMPOSE = ROOT / "docker" / "compose.yaml"
DOCKERFILE = ROOT / "docker" / "Dockerfile"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return document


def test_the_compose_file_fits_the_schema_of_the_compose_specification(compose: dict[str, Any]) -> None:
    schema = json.loads((ROOT / "tests" / "data" / "compose-spec.json").read_text())
    validator = jsonschema.Draft7Validator(schema)
    assert [f"{list(error.path)}: {error.message}" for error in validator.iter_errors(compose)] == []
    assert list(validator.iter_errors({**compose, "services": {"kafka": {"imagine": "x"}}})) != []


def test_the_compose_file_has_a_fleet_of_three_with_names_of_their_own(compose: dict[str, Any]) -> None:
    workers = {name: service for name, service in compose["services"].items() if name.startswith("worker-")}
    assert [service["environment"]["SINK_WORKER_ID"] for service in workers.values()] == sorted(workers)
    assert len(workers) == 3


def test_the_image_is_built_by_one_service_that_all_others_which_run_it_depend_on(compose: dict[str, Any]) -> None:
    image_services = {
        name: service for name, service in compose["services"].items() if service["image"] == "hudi-keeper-sink"
    }
    builders = [name for name, service in image_services.items() if "build" in service]
    assert builders == [name for name, service in compose["services"].items() if "build" in service]
    assert len(builders) == 1
    assert len(image_services) == 4
    for runner in (service for name, service in image_services.items() if name not in builders):
        assert builders[0] in runner["depends_on"]
        assert runner["pull_policy"] == "never"
    assert (COMPOSE.parent / image_services[builders[0]]["build"]["context"] / "docker" / "Dockerfile").is_file()


def test_every_volume_and_dependency_in_the_compose_file_exists(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for service in services.values():
        for name, dependency in service.get("depends_on", {}).items():
            assert name in services
            if dependency["condition"] == "service_healthy":
                assert "test" in services[name]["healthcheck"]
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in compose["volumes"] or (COMPOSE.parent / source).exists()


def test_the_compose_files_settings_can_be_used_by_each_worker(compose: dict[str, Any]) -> None:
    for name in ("worker-1", "worker-2", "worker-3"):
        settings = load(COMPOSE.parent / "sink.yaml", compose["services"][name]["environment"])
        assert settings.worker_id == name
        assert settings.zookeeper == "zookeeper:2181"
        assert settings.bootstrap == "kafka:9092"
        port = settings.http_listen.rpartition(":")[2]
        assert f":{port}/readiness" in compose["services"][name]["healthcheck"]["test"][-1]
        assert compose["services"][name]["ports"] == [f"127.0.0.1:849{name[-1]}:{port}"]


def test_the_producers_command_line_is_understood(compose: dict[str, Any]) -> None:
    command = compose["services"]["producer"]["command"]
    help_text = _run(["-m", command[0], "--help"])
    assert set(re.findall(r"--[a-z]+", " ".join(command))) <= set(re.findall(r"--[a-z]+", help_text))


def test_the_images_commands_are_there() -> None:
    text = DOCKERFILE.read_text()
    modules = {json.loads(line.partition(" ")[2])[0] for line in text.splitlines() if line.startswith("CMD")}
    modules |= set(re.findall(r"^RUN python -m (\S+)", text, re.MULTILINE))
    assert modules == {"sink.worker", "sink.devtools.jars"}
    for module in modules:
        assert "usage:" in _run(["-m", module, "--help"])
    for copied in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE):
        for source in copied.split():
            assert (ROOT / source).exists(), source


@pytest.mark.parametrize(("version", "status"), [(17, 0), (11, 1), (21, 1)])
def test_make_takes_a_java_of_its_own_unless_one_runs_spark_and_one_a_broker(
    version: int, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sink.clients.java import installation as java
    from sink.devtools import jars

    binary = tmp_path / "bin" / "java"
    binary.parent.mkdir()
    output = f"java.specification.version = {version}\\njava.home = {tmp_path}\\n"
    binary.write_text(f"#!/bin/sh\nprintf '{output}'\n")
    binary.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "WHEEL", "no_such_wheel")
    monkeypatch.setattr(jars, "find_java", java.find_java.__wrapped__)
    monkeypatch.setattr(sys, "argv", ["jars", "--java"])
    assert jars.main() == status


def test_make_hides_no_progress_of_the_large_downloads() -> None:
    text = (ROOT / "Makefile").read_text()
    assert "sink.devtools.jars --java" in text
    assert [line for line in text.splitlines() if "--editable" in line and re.search("--quiet|-q", line)] == []


def test_the_unit_starts_the_worker_and_leaves_it_time_to_drain() -> None:
    from sink.runtime.sinks.sink import DRAIN_SECONDS

    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(UNIT.read_text())
    service = unit["Service"]
    assert "-I -m sink.worker --config" in service["ExecStart"]
    assert service["LimitCORE"] == "0"
    assert service["Type"] == "notify"
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) > DRAIN_SECONDS
    assert int(service["WatchdogSec"]) > 0
    assert service["RestartPreventExitStatus"] == "2"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here: apt-get install systemd")
def test_systemd_finds_the_unit_as_little_exposed_as_the_docs_say(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text())
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unrecognized option" in result.stderr:
        pytest.skip("this systemd looks at no file: a newer systemd does")
    score = re.search(r"Overall exposure level for \S+: ([\d.]+)", result.stdout)
    assert score is not None, result.stdout + result.stderr
    assert f"`systemd-analyze security` gives the unit {score[1]}" in (ROOT / "docs" / "operations.md").read_text()


def test_the_unit_sends_sparks_output_to_the_directory_that_it_makes_for_logs() -> None:
    text = UNIT.read_text()
    logs_directory = re.search(r"^LogsDirectory=(\S+)$", text, re.MULTILINE)
    environment = dict(re.findall(r"^Environment=(\w+)=(\S+)$", text, re.MULTILINE))
    assert logs_directory is not None
    assert load(COMPOSE.parent / "sink.yaml", environment).log_dir == Path("/var/log", logs_directory[1])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here: apt-get install systemd")
def test_systemd_finds_no_fault_with_the_unit_but_that_nothing_is_installed(tmp_path: Path) -> None:
    executable = re.search(r"^ExecStart=(\S+)", UNIT.read_text(), re.MULTILINE)
    assert executable is not None
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace(executable[1], sys.executable))
    result = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert result.stderr.strip() == ""
    unit.write_text(UNIT.read_text().replace(executable[1], sys.executable).replace("KillMode=mixed", "KillMode=x"))
    result = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert "kill mode" in result.stderr


def _run(arguments: list[str]) -> str:
    result = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True, cwd=ROOT)
    return result.stdout
