"""Connects Python's threads to the JVM although the JVM listens on no port.

py4j's server reads a line of any length before it knows who asks: another local user could fill the heap of the JVM,
which then ends. So the server's port is closed as soon as this process has connected, and with it the connections of
other processes. For each further thread the JVM connects to a temporary port of this process, which accepts only the
JVM's own address and port; a connection that is kept for that purpose asks the JVM to do so. The protocol is py4j's,
its secret included. Raises what py4j raises.
"""

from __future__ import annotations

import socket
import threading
import weakref
from typing import Any

from py4j.clientserver import ClientServerConnection
from py4j.java_gateway import JavaGateway, JavaObject
from py4j.protocol import Py4JNetworkError

_LOOPBACK = "127.0.0.1"
_SERVER_ID = "GATEWAY_SERVER"
"""Under which py4j's gateway keeps its own server."""
_ACCEPT_SECONDS = 30.0
_BACKLOG = 1024
"""Connections of other processes that may come before the JVM's."""


def close_port(gateway: JavaGateway) -> None:
    """Closes the port of a gateway that was just launched. Its further connections are made by the JVM."""
    connector = _Connector(gateway)
    gateway._gateway_client._create_new_connection = connector.connect
    connector.close_port()


class _Connector:
    def __init__(self, gateway: JavaGateway) -> None:
        self._client = gateway._gateway_client
        self._mutex = threading.RLock()
        java: Any = gateway.jvm.java
        self._server = JavaObject(_SERVER_ID, self._client)
        self._class = java.lang.Class.forName("py4j.GatewayServer")
        kinds = gateway.new_array(java.lang.Class, 1)
        kinds[0] = java.lang.Class.forName("java.net.Socket")
        self._serve = self._class.getDeclaredMethod("processSocket", kinds)
        self._serve.setAccessible(True)
        self._arguments = gateway.new_array(java.lang.Object, 1)
        self.new_java_socket = java.net.Socket
        self._control = self._new_connection()
        self._control.connect_to_java_server()
        connections = (self._control, self._client.get_thread_connection())
        self._own_ends = {connection.socket.getsockname() for connection in connections}

    def close_port(self) -> None:
        """Closes the port, and then the connections that other processes have made until then."""
        self._field("sSocket").close()
        for connection in list(self._field("connections")):
            java_socket = connection.getSocket()
            if (java_socket.getInetAddress().getHostAddress(), java_socket.getPort()) not in self._own_ends:
                java_socket.close()

    def connect(self) -> ClientServerConnection:
        """Returns a new connection of this thread."""
        with self._mutex:
            if self._control.socket is None:
                raise Py4JNetworkError("the JVM is gone")
            self._client.thread_connection.connection = weakref.ref(self._control)
            try:
                accepted = self._accepted()
            except OSError as error:
                raise Py4JNetworkError(f"the JVM could not connect: {error}") from error
            finally:
                self._client.thread_connection.connection = None
        connection = self._new_connection()
        connection.socket, connection.stream = accepted, accepted.makefile("rb")
        connection.is_connected = connection.initiated_from_client = True
        connection._authenticate_connection()
        self._client.set_thread_connection(connection)
        return connection

    def _accepted(self) -> socket.socket:
        """Has the JVM connect to a temporary port and serve that connection. Returns this end of it."""
        with socket.create_server((_LOOPBACK, 0), backlog=_BACKLOG) as listener:
            listener.settimeout(_ACCEPT_SECONDS)
            java_socket = self.new_java_socket(_LOOPBACK, listener.getsockname()[1])
            jvm_end = (_LOOPBACK, java_socket.getLocalPort())
            while True:
                accepted, peer = listener.accept()
                if peer == jvm_end:
                    break
                accepted.close()
        self._arguments[0] = java_socket
        self._serve.invoke(self._server, self._arguments)
        return accepted

    def _new_connection(self) -> ClientServerConnection:
        client = self._client
        return ClientServerConnection(client.java_parameters, client.python_parameters, client.gateway_property, client)

    def _field(self, name: str) -> Any:
        field = self._class.getDeclaredField(name)
        field.setAccessible(True)
        return field.get(self._server)
