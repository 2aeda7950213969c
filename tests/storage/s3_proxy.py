"""A proxy before an S3 server that counts requests, delays each, and can refuse, cut or hold them.

`python -m tests.storage.s3_proxy PORT TARGET`, with TARGET as `host:port`. Control requests steer the proxy:

- `PUT /-/delay?seconds=0.02` delays every request;
- `PUT /-/fault?status=503` fails them (0: no fault; -1: cuts connections; -2: never answers), with `&share=0.3` a part;
- `PUT /-/trap?pattern=REGEX&status=-2` sets a trap: as soon as the store has carried out a request that puts or
  deletes a matching key, each request has that fault, this one's answer included; `GET /-/trapped`: has it sprung;
- `PUT /-/skew?seconds=300` sets the store's clock ahead;
- `PUT /-/without?feature=trailers` refuses checksums that follow the data, `uploads` lists of uploads in parts;
- `PUT /-/expire?key=ASIA` lets the token of that access key expire;
- `GET /-/requests` returns a JSON list of the requests since `PUT /-/forget`, in their order;
- `PUT /-/take` returns each request once.

Signatures stay valid: the proxy does not change hosts and bodies.

A skewed store gives its own time in the responses' `Date` and `Last-Modified` and in listings. Beyond 15 minutes it
refuses requests that another clock has signed, as Amazon does, so that clients have to correct their clocks.
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
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from sink.devtools.local.servers import LOOPBACK, Server

_HEAD_BYTES = 1 << 20
_CONNECTION_HEADERS = {"connection", "keep-alive", "transfer-encoding", "expect"}
CUT, SILENT = -1, -2
_BULK = 1 << 16
_LARGEST_SKEW = timedelta(minutes=15)
_LISTED = re.compile(rb"<LastModified>(.*?)</LastModified>")
_SKEW_ERROR = (
    b"<?xml version='1.0' encoding='UTF-8'?><Error><Code>RequestTimeTooSkewed</Code><Message>The difference between the"
    b" request time and the current time is too large.</Message></Error>"
)
_NOT_IMPLEMENTED = (
    b"<?xml version='1.0' encoding='UTF-8'?><Error><Code>NotImplemented</Code><Message>A header you provided implies"
    b" functionality that is not implemented</Message></Error>"
)
"""Older MinIO, Ceph and Cloudflare answer with this text."""
_EXPIRED_ERROR = (
    b"<?xml version='1.0' encoding='UTF-8'?><Error><Code>ExpiredToken</Code><Message>The provided token has expired."
    b"</Message></Error>"
)


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    status: int
    client: str
    """The client library: `Java`, `C++`, `Rust` or the start of another user agent."""
    started: float

    @property
    def kind(self) -> str:
        query = dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))
        return "LIST" if self.method == "GET" and "list-type" in query else self.method

    @property
    def path(self) -> str:
        """The key in the bucket; for a listing, its prefix."""
        parts = urlsplit(self.target)
        query = dict(parse_qsl(parts.query))
        return query.get("prefix", "") if self.kind == "LIST" else parts.path.partition("/")[2].partition("/")[2]


@dataclass
class _Message:
    start_line: str
    headers: list[tuple[str, str]]
    body: bytes = b""

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")

    def encoded(self, start_line: str, *more_headers: tuple[str, str]) -> bytes:
        headers = [(key, value) for key, value in self.headers if key.lower() not in _CONNECTION_HEADERS]
        lines = [start_line, *(f"{key}: {value}" for key, value in (*headers, *more_headers))]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body


class Proxy:
    def __init__(self, target: str) -> None:
        self._host, _, port = target.partition(":")
        self._port = int(port)
        self._delay = 0.0
        self._fault = 0
        self._share = 1.0
        self._skew = timedelta()
        self._missing_features: set[str] = set()
        self._trap: tuple[re.Pattern[str], int] | None = None
        self._has_sprung = False
        self._expired: set[str] = set()
        self._answering = asyncio.Event()
        """Set while the proxy holds no answer back."""
        self._answering.set()
        self._requests: list[Request] = []

    async def serve(self, port: int) -> None:
        server = await asyncio.start_server(self._client, LOOPBACK, port, limit=_HEAD_BYTES)
        async with server:
            await server.serve_forever()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while (request := await _read(reader, writer)) is not None:
                method, target, _ = request.start_line.split(" ", 2)
                if target.startswith("/-/"):
                    writer.write(self._control(target))
                    continue
                started = asyncio.get_running_loop().time()
                await asyncio.sleep(self._delay)
                if _features(request) & self._missing_features:
                    head = "HTTP/1.1 501 Not Implemented\r\nContent-Type: application/xml\r\nContent-Length: "
                    writer.write(f"{head}{len(_NOT_IMPLEMENTED)}\r\n\r\n".encode() + _NOT_IMPLEMENTED)
                    self._requests.append(Request(method, target, 501, _library(request), started))
                    continue
                if any(f"Credential={key}/" in request.header("authorization") for key in self._expired):
                    body = b"" if method == "HEAD" else _EXPIRED_ERROR
                    head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}"
                    writer.write(f"{head}\r\n\r\n".encode() + body)
                    self._requests.append(Request(method, target, 400, _library(request), started))
                    continue
                status = self._fault if self._share == 1.0 or random.random() < self._share else 0
                if status < 0:
                    if status == SILENT:
                        await self._answering.wait()
                    break
                if status:
                    writer.write(f"HTTP/1.1 {status} Refused\r\nContent-Length: 0\r\n\r\n".encode())
                elif self._is_too_skewed(request):
                    now, status = format_datetime(datetime.now(timezone.utc) + self._skew, usegmt=True), 403
                    head = f"HTTP/1.1 403 Forbidden\r\nDate: {now}\r\nContent-Type: application/xml\r\n"
                    body = b"" if method == "HEAD" else _SKEW_ERROR
                    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                else:
                    response, upstream = await self._forward(request, method, upstream)
                    if self._springs(request, method):
                        if self._fault == SILENT:
                            await self._answering.wait()
                        if self._fault:
                            break
                    writer.write(response)
                    status = int(response.split(b" ", 2)[1])
                self._requests.append(Request(method, target, status, _library(request), started))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # one side has closed its connection: close the other
        finally:
            for stream in (writer, upstream and upstream[1]):
                if stream:
                    stream.close()

    async def _forward(
        self,
        request: _Message,
        method: str,
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None,
    ) -> tuple[bytes, tuple[asyncio.StreamReader, asyncio.StreamWriter] | None]:
        """Returns the server's response, and the connection if it can be used again."""
        length = [] if request.header("content-length") else [("Content-Length", str(len(request.body)))]
        request_bytes = request.encoded(request.start_line, *length)
        for reconnect in (False, True):
            if upstream is None or reconnect:
                upstream = await asyncio.open_connection(self._host, self._port, limit=_HEAD_BYTES)
            try:
                upstream[1].write(request_bytes)
                response = await _read(upstream[0], None, without_body=method == "HEAD")
            except (OSError, asyncio.IncompleteReadError):
                response = None
            if response is not None:
                break
        if response is None:
            raise OSError("the server has gone")
        version, status_text = response.start_line.split(" ", 1)
        if version == "HTTP/1.0" or response.header("connection").lower() == "close":
            upstream[1].close()
            upstream = None
        if self._skew:
            self._shift(response)
        length = [] if response.header("content-length") else [("Content-Length", str(len(response.body)))]
        return response.encoded(f"HTTP/1.1 {status_text}", *length), upstream

    def _springs(self, request: _Message, method: str) -> bool:
        """Springs the trap if the request, which has been carried out, matches it."""
        if self._trap is None or method == "GET" or method == "HEAD":
            return False
        pattern, fault = self._trap
        # A request that deletes many objects names them in its body.
        named = request.body[:_BULK].decode("latin-1") if method == "POST" else ""
        if not pattern.search(f"{unquote(request.start_line)}\n{named}"):
            return False
        self._trap, self._has_sprung = None, True
        self._set_fault(fault, 1.0)
        return True

    def _set_fault(self, status: int, share: float) -> None:
        self._fault, self._share = status, share
        (self._answering.clear if status == SILENT else self._answering.set)()

    def _is_too_skewed(self, request: _Message) -> bool:
        """Compares the time of the signature with the skewed clock."""
        signed = request.header("x-amz-date")
        if not self._skew or not signed:
            return False
        signed_at = datetime.strptime(signed, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
        return abs(datetime.now(timezone.utc) + self._skew - signed_at) > _LARGEST_SKEW

    def _shift(self, response: _Message) -> None:
        """Moves the times in a response to the skewed clock."""
        for position, (key, value) in enumerate(response.headers):
            if key.lower() in ("date", "last-modified"):
                shifted = parsedate_to_datetime(value) + self._skew
                response.headers[position] = key, format_datetime(shifted, usegmt=True)
        body = _LISTED.sub(lambda match: b"<LastModified>%s</LastModified>" % self._shift_time(match[1]), response.body)
        if body != response.body:
            response.body = body
            response.headers = [header for header in response.headers if header[0].lower() != "content-length"]

    def _shift_time(self, iso_time: bytes) -> bytes:
        shifted = datetime.fromisoformat(iso_time.decode().replace("Z", "+00:00")) + self._skew
        return shifted.strftime("%Y-%m-%dT%H:%M:%S.000Z").encode()

    def _control(self, target: str) -> bytes:
        parts = urlsplit(target)
        options = dict(parse_qsl(parts.query))
        body = b""
        match parts.path:
            case "/-/delay":
                self._delay = float(options["seconds"])
            case "/-/fault":
                self._set_fault(int(options["status"]), float(options.get("share", 1)))
            case "/-/trap":
                self._trap = (
                    (re.compile(options["pattern"]), int(options["status"])) if options.get("pattern") else None
                )
                self._has_sprung = False
            case "/-/trapped":
                body = json.dumps(self._has_sprung).encode()
            case "/-/expire":
                self._expired.add(options["key"])
            case "/-/without":
                self._missing_features.add(options["feature"])
            case "/-/skew":
                self._skew = timedelta(seconds=float(options["seconds"]))
            case "/-/forget":
                self._requests = []
            case "/-/requests" | "/-/take":
                body = json.dumps([asdict(request) for request in self._requests]).encode()
                self._requests = [] if parts.path == "/-/take" else self._requests
        return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def _features(request: _Message) -> set[str]:
    """Returns the features of S3 that the request needs and that not every server has."""
    method, target, _ = request.start_line.split(" ", 2)
    query = dict(parse_qsl(urlsplit(target).query, keep_blank_values=True))
    return {
        *(["trailers"] if request.header("x-amz-trailer") else []),
        *(["uploads"] if method == "GET" and "uploads" in query else []),
    }


async def _read(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None, without_body: bool = False
) -> _Message | None:
    """Reads a request, or without a `writer` a response. Returns None at the end of the stream."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    start_line, *lines = head.decode("latin-1").split("\r\n")[:-2]
    message = _Message(start_line, [(key, value.strip()) for key, _, value in (line.partition(":") for line in lines)])
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
    libraries = {"aws-sdk-java": "Java", "aws-sdk-cpp": "C++", "object_store": "Rust"}
    return next((name for marker, name in libraries.items() if marker in agent), agent.partition("/")[0])


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

    def trap(self, pattern: str, status: int = SILENT) -> None:
        """Has every request fail from the moment on when the store has carried out one that matches."""
        self._ask(f"trap?pattern={quote(pattern)}&status={status}")

    def has_trapped(self) -> bool:
        return bool(json.loads(self._ask("trapped")))

    def expire(self, access_key: str) -> None:
        self._ask(f"expire?key={access_key}")

    def miss(self, feature: str) -> None:
        """Answers from now on like a server without `trailers` or `uploads`."""
        self._ask(f"without?feature={feature}")

    def skew(self, seconds: float) -> None:
        self._ask(f"skew?seconds={seconds}")

    def forget(self) -> None:
        self._ask("forget")

    def requests(self) -> Sequence[Request]:
        return [Request(**fields) for fields in json.loads(self._ask("requests"))]

    def take(self) -> Sequence[Request]:
        """Returns each request once."""
        return [Request(**fields) for fields in json.loads(self._ask("take"))]

    def _ask(self, command: str) -> bytes:
        with urllib.request.urlopen(f"{self.url}/-/{command}", timeout=30) as response:
            return bytes(response.read())

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "tests.storage.s3_proxy", str(self.port), self._target]

    def _answers(self) -> bool:
        try:
            return self._ask("requests") == b"[]"
        except OSError:
            return False


if __name__ == "__main__":
    asyncio.run(Proxy(sys.argv[2]).serve(int(sys.argv[1])))
