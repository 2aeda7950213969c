"""A proxy before an S3 server that counts requests, delays each, and can refuse, cut or keep them.

`python -m tests.storage.s3_proxy PORT TARGET`, with TARGET as `host:port`. It is steered by requests of its own:
`PUT /-/delay?seconds=0.02`; `PUT /-/fault?status=503` (0: none; -1: connections are cut; -2: no answer comes) with
`&share=0.3` for a part of the requests; `PUT /-/skew?seconds=300` for a store whose clock is ahead by so much;
`PUT /-/trailers?refused=1` for one that takes no checksums behind the data; `PUT /-/expire?key=ASIA` for one where the
token of that access key has expired; `PUT /-/forget`, and `GET /-/requests`, which gives a JSON list of those since,
in their order; `PUT /-/take` gives each once. Signatures stay valid: hosts and bodies are handed on as they are.

A skewed store gives its own time in the answers' `Date` and `Last-Modified` and in listings. Beyond a quarter of an
hour it turns away requests that were signed by another clock, as Amazon does, so that clients have to set theirs.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from sink.devtools.local.servers import LOOPBACK, Server

_HEAD_BYTES = 1 << 20
_OWN = {"connection", "keep-alive", "transfer-encoding", "expect"}
CUT, SILENT = -1, -2
_LARGEST_SKEW = timedelta(minutes=15)
_LISTED = re.compile(rb"<LastModified>(.*?)</LastModified>")
_SKEWED = (
    b"<?xml version='1.0' encoding='UTF-8'?><Error><Code>RequestTimeTooSkewed</Code><Message>The difference between the"
    b" request time and the current time is too large.</Message></Error>"
)
_NO_TRAILERS = (
    b"<?xml version='1.0' encoding='UTF-8'?><Error><Code>NotImplemented</Code><Message>A header you provided implies"
    b" functionality that is not implemented</Message></Error>"
)
"""In the words of older MinIO, Ceph and Cloudflare."""
_EXPIRED = (
    b"<?xml version='1.0' encoding='UTF-8'?><Error><Code>ExpiredToken</Code><Message>The provided token has expired."
    b"</Message></Error>"
)


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    status: int
    client: str
    """`Java`, `C++`, `Rust` or another one, by the library that asked."""
    started: float

    @property
    def kind(self) -> str:
        query = dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))
        return "LIST" if self.method == "GET" and "list-type" in query else self.method

    @property
    def path(self) -> str:
        """Below the bucket; of a listing, what it lists."""
        parts = urlsplit(self.target)
        query = dict(parse_qsl(parts.query))
        return query.get("prefix", "") if self.kind == "LIST" else parts.path.partition("/")[2].partition("/")[2]


@dataclass
class _Message:
    first: str
    headers: list[tuple[str, str]]
    body: bytes = b""

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")

    def encoded(self, first: str, *more: tuple[str, str]) -> bytes:
        kept = [(key, value) for key, value in self.headers if key.lower() not in _OWN]
        lines = [first, *(f"{key}: {value}" for key, value in (*kept, *more))]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body


class Proxy:
    def __init__(self, target: str) -> None:
        self._host, _, port = target.partition(":")
        self._port = int(port)
        self._delay = 0.0
        self._fault = 0
        self._share = 1.0
        self._skew = timedelta()
        self._refuses_trailers = False
        self._expired: set[str] = set()
        self._well = asyncio.Event()
        """Set while no answer is kept back."""
        self._well.set()
        self._seen: list[Request] = []

    async def serve(self, port: int) -> None:
        server = await asyncio.start_server(self._client, LOOPBACK, port, limit=_HEAD_BYTES)
        async with server:
            await server.serve_forever()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while (request := await _read(reader, writer)) is not None:
                method, target, _ = request.first.split(" ", 2)
                if target.startswith("/-/"):
                    writer.write(self._steered(target))
                    continue
                started = asyncio.get_running_loop().time()
                await asyncio.sleep(self._delay)
                if self._refuses_trailers and request.header("x-amz-trailer"):
                    head = "HTTP/1.1 501 Not Implemented\r\nContent-Type: application/xml\r\nContent-Length: "
                    writer.write(f"{head}{len(_NO_TRAILERS)}\r\n\r\n".encode() + _NO_TRAILERS)
                    continue
                if any(f"Credential={key}/" in request.header("authorization") for key in self._expired):
                    body = b"" if method == "HEAD" else _EXPIRED
                    head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}"
                    writer.write(f"{head}\r\n\r\n".encode() + body)
                    self._seen.append(Request(method, target, 400, _library(request), started))
                    continue
                status = self._fault if self._share == 1.0 or random.random() < self._share else 0
                if status < 0:
                    if status == SILENT:
                        await self._well.wait()
                    break
                if status:
                    writer.write(f"HTTP/1.1 {status} Refused\r\nContent-Length: 0\r\n\r\n".encode())
                elif self._is_too_skewed(request):
                    now, status = format_datetime(datetime.now(timezone.utc) + self._skew, usegmt=True), 403
                    head = f"HTTP/1.1 403 Forbidden\r\nDate: {now}\r\nContent-Type: application/xml\r\n"
                    body = b"" if method == "HEAD" else _SKEWED
                    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                else:
                    answer, upstream = await self._forwarded(request, method, upstream)
                    writer.write(answer)
                    status = int(answer.split(b" ", 2)[1])
                self._seen.append(Request(method, target, status, _library(request), started))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # one side has gone: so does this connection
        finally:
            for each in (writer, upstream and upstream[1]):
                if each:
                    each.close()

    async def _forwarded(
        self,
        request: _Message,
        method: str,
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None,
    ) -> tuple[bytes, tuple[asyncio.StreamReader, asyncio.StreamWriter] | None]:
        """The answer, and the connection if it can be used again."""
        length = [] if request.header("content-length") else [("Content-Length", str(len(request.body)))]
        sent = request.encoded(request.first, *length)
        for fresh in (False, True):
            if upstream is None or fresh:
                upstream = await asyncio.open_connection(self._host, self._port, limit=_HEAD_BYTES)
            try:
                upstream[1].write(sent)
                answer = await _read(upstream[0], None, without_body=method == "HEAD")
            except (OSError, asyncio.IncompleteReadError):
                answer = None
            if answer is not None:
                break
        if answer is None:
            raise OSError("the server has gone")
        version, rest = answer.first.split(" ", 1)
        if version == "HTTP/1.0" or answer.header("connection").lower() == "close":
            upstream[1].close()
            upstream = None
        if self._skew:
            self._shift(answer)
        length = [] if answer.header("content-length") else [("Content-Length", str(len(answer.body)))]
        return answer.encoded(f"HTTP/1.1 {rest}", *length), upstream

    def _is_too_skewed(self, request: _Message) -> bool:
        """By the time that it was signed at."""
        signed = request.header("x-amz-date")
        if not self._skew or not signed:
            return False
        at = datetime.strptime(signed, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
        return abs(datetime.now(timezone.utc) + self._skew - at) > _LARGEST_SKEW

    def _shift(self, answer: _Message) -> None:
        """Moves the times in an answer to the skewed clock."""
        for position, (key, value) in enumerate(answer.headers):
            if key.lower() in ("date", "last-modified"):
                answer.headers[position] = key, format_datetime(parsedate_to_datetime(value) + self._skew, usegmt=True)
        shifted = _LISTED.sub(lambda found: b"<LastModified>%s</LastModified>" % self._shifted(found[1]), answer.body)
        if shifted != answer.body:
            answer.body = shifted
            answer.headers = [each for each in answer.headers if each[0].lower() != "content-length"]

    def _shifted(self, listed: bytes) -> bytes:
        at = datetime.fromisoformat(listed.decode().replace("Z", "+00:00")) + self._skew
        return at.strftime("%Y-%m-%dT%H:%M:%S.000Z").encode()

    def _steered(self, target: str) -> bytes:
        parts = urlsplit(target)
        given = dict(parse_qsl(parts.query))
        body = b""
        match parts.path:
            case "/-/delay":
                self._delay = float(given["seconds"])
            case "/-/fault":
                self._fault, self._share = int(given["status"]), float(given.get("share", 1))
                (self._well.clear if self._fault == SILENT else self._well.set)()
            case "/-/expire":
                self._expired.add(given["key"])
            case "/-/trailers":
                self._refuses_trailers = given["refused"] == "1"
            case "/-/skew":
                self._skew = timedelta(seconds=float(given["seconds"]))
            case "/-/forget":
                self._seen = []
            case "/-/requests" | "/-/take":
                body = json.dumps([asdict(request) for request in self._seen]).encode()
                self._seen = [] if parts.path == "/-/take" else self._seen
        return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def _read(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None, without_body: bool = False
) -> _Message | None:
    """A request, or with no `writer` an answer; None at the end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    message = _Message(first, [(key, value.strip()) for key, _, value in (line.partition(":") for line in lines)])
    if writer is not None and message.header("expect").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if without_body:
        return message
    if message.header("transfer-encoding").lower() == "chunked":
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            message.body += (await reader.readexactly(size + 2))[:-2]
        while await reader.readuntil(b"\r\n") != b"\r\n":
            continue
    elif length := int(message.header("content-length") or 0):
        message.body = await reader.readexactly(length)
    return message


def _library(request: _Message) -> str:
    agent = request.header("user-agent")
    known = {"aws-sdk-java": "Java", "aws-sdk-cpp": "C++", "object_store": "Rust"}
    return next((name for part, name in known.items() if part in agent), agent.partition("/")[0])


class S3Proxy(Server):
    """The proxy as a process of its own."""

    def __init__(self, directory: Path, target: str) -> None:
        super().__init__(directory, 0, "S3 proxy")
        self._target = urlsplit(target).netloc

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def delay(self, seconds: float) -> None:
        self._ask(f"delay?seconds={seconds}")

    def fault(self, status: int, share: float = 1.0) -> None:
        self._ask(f"fault?status={status}&share={share}")

    def expire(self, access_key: str) -> None:
        self._ask(f"expire?key={access_key}")

    def refuse_trailers(self) -> None:
        self._ask("trailers?refused=1")

    def skew(self, seconds: float) -> None:
        self._ask(f"skew?seconds={seconds}")

    def forget(self) -> None:
        self._ask("forget")

    def requests(self) -> Sequence[Request]:
        return [Request(**each) for each in json.loads(self._ask("requests"))]

    def take(self) -> Sequence[Request]:
        """Each request is given once."""
        return [Request(**each) for each in json.loads(self._ask("take"))]

    def _ask(self, what: str) -> bytes:
        with urllib.request.urlopen(f"{self.url}/-/{what}", timeout=30) as answer:
            return bytes(answer.read())

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "tests.storage.s3_proxy", str(self.port), self._target]

    def _answers(self) -> bool:
        try:
            return self._ask("requests") == b"[]"
        except OSError:
            return False


if __name__ == "__main__":
    asyncio.run(Proxy(sys.argv[2]).serve(int(sys.argv[1])))
