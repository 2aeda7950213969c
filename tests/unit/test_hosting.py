"""A process begins, releases and reports its sinks as its configuration and the topics of Kafka change."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any, cast

import pytest
import yaml

from coordination.errors import ConfigError, SinkError
from sink.config import Settings, load_configuration
from sink.runtime.process import hosting
from sink.runtime.process.discovery import TopicDiscovery
from sink.runtime.process.hosting import HostedSinks
from sink.runtime.sinks.sink import Sink
from sink.telemetry.metrics import ProcessMetrics

SHARED = {
    "zookeeper.connect": "zk:2181",
    "kafka.bootstrap.servers": "kafka:9092",
    "schema.ddl": "id BIGINT",
    "worker.id": "w1",
}
EVERY = {"kafka.topic.regex": "(eu|us)-.*", "target.base.path": "/lake/{topic}"}


def of_topic(topic: str, **more: object) -> dict[str, object]:
    return {"kafka.topic.names": topic, "target.base.path": f"/lake/{topic}", **more}


class FakeSink:
    """A sink without servers. It drains until `ended` is set."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.refusal: SinkError | None = None
        self.is_asked_to_drain = False
        self.ended = Event()
        self.is_leaving = False

    def start(self) -> None:
        pass

    def leave(self) -> None:
        self.is_leaving = True


class World:
    """A process without servers: its configuration, the topics of Kafka, and the sinks that it has begun."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "fleet.yaml"
        self.topics: tuple[str, ...] = ()
        self.begun: list[FakeSink] = []
        self.refused: list[str] = []

    def write(self, sinks: dict[str, dict[str, object]], **shared: object) -> None:
        more = {name.replace("__", "."): value for name, value in shared.items()}
        self.path.write_text(yaml.safe_dump({**SHARED, **more, "sinks": sinks}))

    def begin(self) -> HostedSinks:
        fleet = load_configuration(self.path, {}, strict=False)
        self.metrics = ProcessMetrics("w1")
        self.discovery = TopicDiscovery(fleet, lambda _: cast(Any, self.kafka))
        self.hosted = HostedSinks(fleet, self.discovery, self.metrics, self.new_sink, self.hear_refusal)
        self.hosted.begin()
        return self.hosted

    @property
    def kafka(self) -> Any:
        topics = self.topics

        class Topics:
            def topics(self) -> tuple[str, ...]:
                return topics

        return Topics()

    def new_sink(self, settings: Settings) -> Sink:
        sink = FakeSink(settings)
        self.begun.append(sink)
        return cast(Sink, sink)

    def hear_refusal(self, name: str, error: SinkError) -> None:
        self.refused.append(f"{name}: {error}")

    def pass_by(self) -> None:
        """Does what the process does again and again."""
        self.discovery.poll()
        self.hosted.forget_released()
        self.hosted.begin_missing()
        self.hosted.require_a_sink()

    def end(self, sink: Any) -> None:
        """Lets a sink that drains have drained, and the process notice it."""
        sink.ended.set()
        self.pass_by()

    @property
    def running(self) -> list[str]:
        return sorted(self.hosted.sinks)

    def sink(self, name: str) -> FakeSink:
        return cast(FakeSink, self.hosted.sinks[name])


def reload(hosted: HostedSinks) -> None:
    """Reloads, and waits until the configuration has been taken up, as the process does from tick to tick."""
    hosted.reload()
    deadline = time.monotonic() + 60
    while hosted.is_reloading and time.monotonic() < deadline:
        time.sleep(0.01)
        hosted.take_up_reload()
    assert not hosted.is_reloading


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_reload_that_widens_which_sinks_a_worker_hosts_takes_up_those_of_topics_found_before(world: World) -> None:
    world.topics = ("eu-a", "us-a")
    world.write({"every": EVERY}, worker__sinks="eu-*")
    hosted = world.begin()
    world.pass_by()
    assert world.running == ["eu-a"]
    world.write({"every": EVERY}, worker__sinks="*")
    reload(hosted)
    world.pass_by()
    assert world.running == ["eu-a", "us-a"]


def test_a_reload_that_narrows_which_sinks_a_worker_hosts_lets_go_of_those_of_topics(world: World) -> None:
    world.topics = ("eu-a", "us-a")
    world.write({"every": EVERY})
    hosted = world.begin()
    world.pass_by()
    world.write({"every": EVERY}, worker__sinks="us-*")
    reload(hosted)
    assert world.running == ["us-a"]
    assert [sink.settings.name for sink in world.begun if sink.is_leaving] == ["eu-a"]
    world.pass_by()
    assert world.running == ["us-a"]


def test_a_reload_gives_no_pattern_the_topic_of_a_sink_that_cannot_be_used(world: World) -> None:
    world.topics = ("eu-a", "us-a", "us-b")
    world.write({"every": EVERY, "fixed": of_topic("fixed")}, worker__sinks=["fixed", "eu-*"])
    hosted = world.begin()
    world.pass_by()
    world.write({"every": EVERY, "fixed": of_topic("fixed"), "own": of_topic("us-a", **{"flush.size": "many"})})
    reload(hosted)
    world.pass_by()
    assert world.running == ["eu-a", "fixed", "us-b"]


def test_settings_of_its_own_for_a_topic_that_a_pattern_runs_already_are_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = logged_refusals(monkeypatch)
    world.topics = ("eu-a",)
    world.write({"every": EVERY})
    hosted = world.begin()
    world.pass_by()
    world.write({"every": EVERY, "eu-a": of_topic("eu-a", **{"flush.size": 5})})
    reload(hosted)
    assert "flush.size may not change while the sink runs" in refusals()["eu-a"]
    world.write({"every": EVERY})
    reload(hosted)
    world.pass_by()
    assert refusals() == {}
    assert len(world.begun) == 1


def test_a_reload_begins_a_refused_sink_again_with_its_new_settings_and_reports_each_refusal(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = logged_refusals(monkeypatch)
    world.write({"good": of_topic("good"), "bad": of_topic("bad")})
    hosted = world.begin()
    world.sink("bad").refusal = ConfigError("the table has other columns")
    world.pass_by()
    assert refusals() == {"bad": "the table has other columns"}
    assert world.refused == ["bad: the table has other columns"]
    world.pass_by()
    assert refusals() == {}
    assert 'sink_refused{sink="bad"} 1.0' in world.metrics.text().decode()
    world.write({"good": of_topic("good"), "bad": of_topic("bad", **{"flush.size": 5})})
    reload(hosted)
    world.pass_by()
    assert refusals() == {}
    assert world.sink("bad").settings.flush_size == 5
    assert 'sink_refused{sink="bad"} 1.0' not in world.metrics.text().decode()
    world.sink("bad").refusal = ConfigError("the table has other columns")
    world.pass_by()
    assert refusals() == {"bad": "the table has other columns"}
    assert 'sink_refused{sink="bad"} 1.0' in world.metrics.text().decode()


def test_a_pattern_takes_a_topic_whose_own_settings_were_removed_once_its_sink_has_drained(world: World) -> None:
    world.topics = ("eu-a",)
    world.write({"every": EVERY, "fixed": of_topic("fixed"), "eu-a": of_topic("eu-a", **{"flush.size": 5})})
    hosted = world.begin()
    old = world.sink("eu-a")
    world.write({"every": EVERY, "fixed": of_topic("fixed")})
    reload(hosted)
    world.pass_by()
    assert world.running == ["fixed"]
    world.end(old)
    assert world.running == ["eu-a", "fixed"]
    assert world.sink("eu-a").settings.flush_size != 5


def test_a_sink_that_is_configured_again_while_it_drains_begins_after_that(world: World) -> None:
    both = {"a": of_topic("a"), "b": of_topic("b")}
    world.write(both)
    hosted = world.begin()
    old = world.sink("b")
    world.write({"a": of_topic("a")})
    reload(hosted)
    world.write(both)
    reload(hosted)
    world.pass_by()
    assert world.running == ["a"]
    world.end(old)
    assert world.running == ["a", "b"]


def test_the_process_goes_on_while_a_removed_sink_drains_though_the_only_other_one_is_refused(world: World) -> None:
    world.write({"a": of_topic("a"), "b": of_topic("b")})
    hosted = world.begin()
    old = world.sink("b")
    world.write({"a": of_topic("a")})
    reload(hosted)
    world.sink("a").refusal = ConfigError("the table has other columns")
    world.pass_by()
    old.ended.set()
    with pytest.raises(ConfigError, match="other columns"):
        world.pass_by()


def test_a_worker_whose_sinks_are_all_misconfigured_ends_unless_a_pattern_can_bring_another(world: World) -> None:
    sinks = {"a": of_topic("a"), "b": of_topic("b", **{"flush.size": "many"})}
    world.write(sinks, worker__sinks="b")
    world.begin()
    with pytest.raises(ConfigError, match=r"(?s)no sink can run:.*b: .*flush\.size"):
        world.pass_by()
    world.write({**sinks, "every": EVERY}, worker__sinks="b")
    world.begin()
    world.pass_by()
    assert world.running == []


def logged_refusals(monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, str]]:
    """Returns a function that returns the refusals of sinks that were logged since its last call."""
    refusals: dict[str, str] = {}

    class Log:
        def error(self, event: str, **fields: str) -> None:
            if event in {"sink.refused", "reload.sink_refused"}:
                refusals[fields["sink"]] = fields["reason"]

        def info(self, event: str, **fields: object) -> None:
            pass

    monkeypatch.setattr("sink.runtime.process.hosting.LOG", Log())

    def since() -> dict[str, str]:
        current = dict(refusals)
        refusals.clear()
        return current

    return since


def test_a_reload_of_a_thousand_sinks_keeps_the_main_loop_from_its_next_tick_for_a_moment_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write({"a": of_topic("a")})
    hosted = world.begin()
    world.write({f"s{number}": of_topic(f"s{number}") for number in range(1000)})
    release, original = Event(), hosting.load_configuration
    monkeypatch.setattr(
        hosting, "load_configuration", lambda *args, **more: (release.wait(30), original(*args, **more))[1]
    )
    hosted.reload()
    for _ in range(3):
        world.pass_by()
        hosted.take_up_reload()
    assert hosted.is_reloading
    release.set()
    longest = 0.0
    while hosted.is_reloading or hosted.has_more:
        before = time.thread_time()
        hosted.take_up_reload()
        world.pass_by()
        longest = max(longest, time.thread_time() - before)
        time.sleep(0.01)
    assert len(world.running) == 1000
    assert "a" not in world.running
    print(f"the longest tick took {longest:.2f} s of CPU")
    assert longest < 1, longest


def test_new_sinks_begin_and_removed_ones_are_let_go_in_steps(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write({name: of_topic(name) for name in "abc"})
    hosted = world.begin()
    world.write({name: of_topic(name) for name in "def"})
    monkeypatch.setattr(hosting, "STEP_SECONDS", 0.0)
    monkeypatch.setattr(hosting.HostedSinks.begin_missing, "__defaults__", (0.0,))
    reload(hosted)
    world.pass_by()
    assert (world.running, hosted.has_more) == (["a", "b", "c"], True)
    assert not hosted.have_left()
    monkeypatch.setattr(hosting.HostedSinks.begin_missing, "__defaults__", (30.0,))
    world.pass_by()
    assert (world.running, hosted.has_more) == (["d", "e", "f"], False)
    assert [sink.settings.name for sink in world.begun if sink.is_leaving] == ["a", "b", "c"]


def test_a_removed_sink_that_a_second_reload_brings_back_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write({name: of_topic(name) for name in "ab"})
    hosted = world.begin()
    monkeypatch.setattr(hosting, "STEP_SECONDS", 0.0)
    world.write({"b": of_topic("b")})
    reload(hosted)
    world.write({name: of_topic(name) for name in "ab"})
    reload(hosted)
    world.pass_by()
    assert (world.running, hosted.has_more) == (["a", "b"], False)
    assert not [sink for sink in world.begun if sink.is_leaving]
