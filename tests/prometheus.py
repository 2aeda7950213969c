"""A real Prometheus that scrapes workers and evaluates the alert rules of this repository."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import yaml

from sink.devtools.local.child_process import Child
from sink.devtools.local.servers import free_ports

RULES = Path(__file__).resolve().parents[1] / "docker" / "monitoring" / "alerts.yaml"
MISSING = "no Prometheus here: apt-get install prometheus"


class Prometheus:
    """A Prometheus server with the rules of this repository."""

    def __init__(
        self, program: str, directory: Path, targets: Sequence[int], scrape: int = 1, evaluate: int = 2
    ) -> None:
        """`scrape` and `evaluate` are intervals in seconds; `targets` are loopback ports."""
        directory.mkdir()
        [port] = free_ports(1)
        self._url = f"http://127.0.0.1:{port}/api/v1/alerts"
        rules = yaml.safe_load(RULES.read_text())
        for group in rules["groups"]:
            group["interval"] = f"{evaluate}s"
        (directory / "alerts.yaml").write_text(yaml.safe_dump(rules))
        addresses = [f"127.0.0.1:{target}" for target in targets]
        config = {
            "global": {"scrape_interval": f"{scrape}s", "evaluation_interval": f"{evaluate}s"},
            "rule_files": ["alerts.yaml"],
            "scrape_configs": [{"job_name": "sink", "static_configs": [{"targets": addresses}]}],
        }
        (directory / "prometheus.yaml").write_text(yaml.safe_dump(config))
        arguments = [
            f"--config.file={directory / 'prometheus.yaml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        self.child = Child("prometheus", [program, *arguments], directory / "prometheus.log")

    def alerts(self, *states: str) -> set[str]:
        """Returns the names of the alerts in these states."""
        with urlopen(self._url, timeout=5) as answer:
            alerts = json.load(answer)["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] in states}

    def answers(self) -> bool:
        try:
            return self.alerts("firing") is not None
        except URLError:
            return False
