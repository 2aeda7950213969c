"""An event is one log line, which names its worker and sink, and never a secret."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from coordination.errors import ConfigError
from sink.telemetry import logs
from sink.telemetry.redaction import HIDDEN, Properties, Redactor, looks_secret, redact_text
from tests.one_sink import load

SECRET = "hunter2-Tr0ub4dor"


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.fixture(params=["json", "console"])
def log_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def log_everything(secret: str) -> None:
    log = structlog.get_logger("sink.coordinator")
    log.info(
        "plain",
        password=secret,
        nested={"token": secret, "list": [secret, {"x": secret}]},
        error=OSError(secret),
    )
    log.warning(f"in the message {secret}", url=f"http://user:{secret}@host/", text=f'jaas password="{secret}";')
    log.error("an object", settings=Properties({"sasl.password": secret}), raw=secret.encode())
    try:
        raise RuntimeError(f"wrong password {secret}")
    except RuntimeError:
        log.exception("failed")
        logging.getLogger("kazoo.client").exception("lost %s", secret)
    logging.getLogger("py4j").error("odd %s", {"a": secret})
    logging.getLogger("kazoo").error("wrong arguments %d", secret)
    structlog.get_logger("sink.worker").critical("last", **{secret: 1})


def test_a_secret_is_never_logged_wherever_it_stands(log_format: str):
    out = io.StringIO()
    logs.configure("debug", log_format, Redactor([SECRET]), out)
    log_everything(SECRET)
    assert SECRET not in out.getvalue()
    assert len(out.getvalue().splitlines()) == 8


def test_a_secret_that_comes_while_the_process_runs_is_never_logged_from_then_on(log_format: str):
    out = io.StringIO()
    logs.configure("debug", log_format, Redactor(["another-secret"]), out)
    logs.hide([SECRET])
    log_everything(SECRET)
    log_everything("another-secret")
    assert SECRET not in out.getvalue()
    assert "another-secret" not in out.getvalue()


def test_secrets_of_the_settings_are_hidden_in_every_rendering(tmp_path: Path):
    path = tmp_path / "sink.properties"
    path.write_text(
        "zookeeper.connect=zk\nkafka.bootstrap.servers=b:9092\ntopics=t\n"
        "target.base.path=/t\ntarget.table.name=t\nschema.ddl=id INT\n"
        f'kafka.sasl.jaas.config=X required username="u" password="{SECRET}";\n'
        f"kafka.ssl.keystore.key={SECRET}\nkafka.ssl.keystore.certificate.chain=C\n"
        f"spark.hadoop.fs.s3a.secret.key={SECRET}\n"
        f"hoodie.some.token={SECRET}\nspark.plain=${{env:PLAIN}}\nspark.url=jdbc://me:{SECRET}@db/x\n"
        f"spark.master=spark://me:{SECRET}@host\n"
    )
    settings = load(path, {"PLAIN": SECRET})
    out = io.StringIO()
    logs.configure(settings.log_level, settings.log_format, Redactor(settings.secrets), out)
    logs.identify(settings.worker_id, settings.name)
    structlog.get_logger("sink").info("settings", settings=settings, kafka=settings.kafka, native=settings.kafka_native)
    structlog.get_logger("sink").error(f"connection failed: {settings.kafka['ssl.keystore.key']}")
    rendered = [
        out.getvalue(),
        repr(settings),
        str(settings),
        f"{settings}",
        settings.model_dump_json(),
        str(settings.model_dump()),
        repr([settings.kafka, settings.spark, settings.hudi, settings.kafka_native]),
        "".join(str(getattr(settings, name)) for name in ("kafka", "spark", "hudi")),
        settings.config_digest,
    ]
    assert [text for text in rendered if SECRET in text] == []
    assert "worker" in out.getvalue()


def test_a_refused_configuration_does_not_tell_its_secrets(tmp_path: Path):
    path = tmp_path / "sink.yaml"
    path.write_text(
        f"kafka.sasl.pasword: {SECRET}\nkafka.sasl.password: [{SECRET}]\nfush.token: {SECRET}\n"
        f"my.secret: {SECRET}\nzookeeper.connect: zk://me:{SECRET}@host\n"
        f"flush.size: ${{env:PLAIN}}\nkafka.isolation.level: {SECRET}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(path, {"PLAIN": SECRET})
    assert SECRET not in str(caught.value)
    assert "flush.size (******) is not a whole number" in str(caught.value)


def test_json_events_are_one_object_a_line_with_their_context():
    out = io.StringIO()
    logs.configure("info", "json", None, out)
    with logs.bound(worker="w1", sink="orders", epoch=3, transaction=7):
        structlog.get_logger("sink.coordinator").info("prepared", slices=4)
        with logs.bound(transaction=None, epoch=4):
            structlog.get_logger("sink.coordinator").info("elected\nagain")
    structlog.get_logger("sink.coordinator").info("outside")
    first, second, third = (json.loads(line) for line in out.getvalue().splitlines())
    assert {k: first[k] for k in ("level", "event", "worker", "sink", "epoch", "transaction", "slices")} == {
        "level": "info",
        "event": "prepared",
        "worker": "w1",
        "sink": "orders",
        "epoch": 3,
        "transaction": 7,
        "slices": 4,
    }
    assert list(first)[:4] == ["timestamp", "level", "event", "logger"]
    assert second["event"] == "elected\nagain"
    assert second["epoch"] == 4
    assert "transaction" not in second
    assert "worker" not in third


def test_every_thread_says_which_worker_and_sink_it_works_for():
    out = io.StringIO()
    logs.configure(stream=out)
    logs.identify("w1", "orders")
    library_thread = threading.Thread(target=lambda: logging.getLogger("kazoo").error("of a library"))
    with logs.bound(sink="payments", epoch=3), ThreadPoolExecutor(1) as pool:
        context_thread = logs.ContextThread(target=lambda: structlog.get_logger("sink").info("own thread"))
        context_thread.start()
        pool.submit(logs.in_context(structlog.get_logger("sink").info), "own executor").result()
        pool.submit(logging.getLogger("py4j").warning, "callback").result()
        library_thread.start()
        for thread in (context_thread, library_thread):
            thread.join()
    lines = {line["event"]: line for line in map(json.loads, out.getvalue().splitlines())}
    origins = {event: (line["worker"], line["sink"], line.get("epoch")) for event, line in lines.items()}
    assert origins == {
        "own thread": ("w1", "payments", 3),
        "own executor": ("w1", "payments", 3),
        "callback": ("w1", "orders", None),
        "of a library": ("w1", "orders", None),
    }


def test_libraries_are_heard_from_warning_on_and_debug_is_off_by_default(log_format: str):
    out = io.StringIO()
    logs.configure(form=log_format, stream=out)
    logging.getLogger("kazoo.client").info("connected")
    logging.getLogger("coordination.zookeeper.keeper").debug("detail")
    structlog.get_logger("sink.runtime").debug("detail")
    assert out.getvalue() == ""
    logging.getLogger("py4j").warning("answer received late")
    logging.getLogger("sink.clients.kafka.log").info("seen")
    assert len(out.getvalue().splitlines()) == 2


def test_kazoo_is_heard_only_of_errors_for_it_warns_at_every_attempt_to_connect():
    out = io.StringIO()
    logs.configure(stream=out)
    logging.getLogger("kazoo.client").warning("connection dropped")
    assert out.getvalue() == ""
    logging.getLogger("kazoo.client").error("no such host")
    assert "no such host" in out.getvalue()


def test_an_event_cannot_forge_another_line_on_the_console():
    out = io.StringIO()
    logs.configure("info", "console", None, out)
    structlog.get_logger("sink").info("topic\r\n2026 [critical ] forged", name="a\x1b[2Jb\u2028c\nd")
    assert len(out.getvalue().splitlines()) == 1
    assert "\x1b" not in out.getvalue()


@pytest.mark.parametrize(
    "key",
    [
        "sasl.password", "SASL_PASSWORD", "sasl.jaas.config", "ssl.key.password", "ssl.keystore.key",
        "ssl.key.pem",
        "spark.hadoop.fs.s3a.access.key", "spark.hadoop.fs.s3a.secret.key", "fs.azure.account.key.x.net",
        "apiKey",
        "spark.authenticate.secret", "basic.auth.user.info", "hoodie.x.token", "clientSecret", "accessKey",
        "db.pwd",
    ],
)  # fmt: skip
def test_a_key_that_sounds_secret_is_hidden(key: str):
    assert looks_secret(key)


@pytest.mark.parametrize(
    "key",
    [
        "record.key.fields", "hoodie.datasource.write.recordkey.field",
        "hoodie.write.lock.zookeeper.lock_key",
        "kafka.key.deserializer", "hoodie.table.keygenerator.class", "topic", "epoch",
        "ssl.truststore.location", "key.format", "delete.key.format",
        "zookeeper.connect", "monkey", "hoodie.datasource.write.keygenerator.class", "author",
    ],
)  # fmt: skip
def test_a_harmless_key_is_shown(key: str):
    assert not looks_secret(key)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("see https://user:p@ss@host/x@y", f"see https://{HIDDEN}@host/x@y"),
        ("Authorization: Bearer abc.def, then", f"Authorization: Bearer {HIDDEN}, then"),
        ('{"authorization": "Basic dXNlcg=="}', f'{{"authorization": "Basic {HIDDEN}"}}'),
        ("basic.auth.user.info=u:p pwd=x", f"basic.auth.user.info={HIDDEN} pwd={HIDDEN}"),
        ("Basic authentication failed", "Basic authentication failed"),
    ],
)
def test_what_sounds_like_a_credential_is_hidden_in_a_text(text: str, hidden: str) -> None:
    assert redact_text(text) == hidden


@given(st.text(alphabet=st.characters(exclude_characters="@/?# \t\r\n\"'", exclude_categories=["C", "Z"]), min_size=3))
def test_userinfo_of_a_url_is_hidden_whatever_it_is(password: str):
    hidden = redact_text(f"see https://me:{password}@host:1/path?x=1 there")
    assert hidden == f"see https://{HIDDEN}@host:1/path?x=1 there"


def test_a_private_key_is_hidden():
    text = "before -----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- after"
    assert redact_text(text) == f"before {HIDDEN} after"
