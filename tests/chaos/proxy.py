"""A TCP proxy that cuts connections, or silences them in one direction, as a bad network does."""

from __future__ import annotations

import contextlib
import socket
import threading
from enum import Enum

CHUNK = 65536
LOOK_SECONDS = 0.2


class Mode(Enum):
    OPEN = "open"
    CUT = "cut"
    """The proxy closes all connections, new ones too."""
    NOTHING_OUT = "nothing out"
    """The proxy holds back what the client sends; connections stay."""
    NOTHING_IN = "nothing in"


class Proxy:
    """Listens on a loopback port of its own for one worker, and forwards to `target` (`host:port`)."""

    def __init__(self, target: str) -> None:
        host, _, port = target.partition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._mode = Mode.OPEN
        self._changed = threading.Condition()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def set(self, mode: Mode) -> None:
        with self._changed:
            self._mode = mode
            pairs = set(self._pairs) if mode is Mode.CUT else set()
            self._changed.notify_all()
        for pair in pairs:
            self._end(pair)

    def switch(self, target: str) -> None:
        """Forwards to another target from now on, as a name does that comes to mean another host."""
        self.set(Mode.CUT)
        host, _, port = target.partition(":")
        self._target = host, int(port)
        self.set(Mode.OPEN)

    def close(self) -> None:
        self.set(Mode.CUT)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed: the proxy has ended
            if self._mode is Mode.CUT:
                client.close()
                continue
            try:
                server = socket.create_connection(self._target, timeout=5)
            except OSError:
                client.close()  # as a server that is down looks to a client
                continue
            server.settimeout(None)
            pair = client, server
            with self._changed:
                self._pairs.add(pair)
                late = self._mode is Mode.CUT
            if late:
                self._end(pair)  # cut while it was being opened
                continue
            for source, sink, silence in ((client, server, Mode.NOTHING_OUT), (server, client, Mode.NOTHING_IN)):
                threading.Thread(target=self._forward, args=(pair, source, sink, silence), daemon=True).start()

    def _forward(
        self, pair: tuple[socket.socket, socket.socket], source: socket.socket, sink: socket.socket, silence: Mode
    ) -> None:
        try:
            while data := source.recv(CHUNK):
                with self._changed:
                    while self._mode is silence:
                        self._changed.wait(LOOK_SECONDS)
                sink.sendall(data)
        except OSError:
            pass  # one side is gone: the other is closed below
        self._end(pair)

    def _end(self, pair: tuple[socket.socket, socket.socket]) -> None:
        self._pairs.discard(pair)
        for connection in pair:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
