"""Runs a real Kerberos key distribution centre for tests: MIT's `krb5kdc`, with its database in a directory.

`apt-get install krb5-kdc krb5-admin-server krb5-user` brings the programs.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

from sink.devtools.local.servers import LOOPBACK, Server

REALM = "SINK.TEST"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")

_CLIENT = """[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
[realms]
{realm} = {{
kdc = {address}
}}
"""
_SERVER = """[logging]
kdc = FILE:{directory}/kdc.log
[kdcdefaults]
kdc_listen = {address}
kdc_tcp_listen = {address}
[realms]
{realm} = {{
database_name = {directory}/principal
key_stash_file = {directory}/stash
acl_file = {directory}/kadm5.acl
}}
"""


def missing_program() -> str | None:
    """Returns the name of a program that is not installed; None if all are."""
    return next((program for program in PROGRAMS if _found(program) is None), None)


class KeyDistributionCentre(Server):
    """A realm on loopback, without any principal of a user or service."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 0, "krb5kdc")

    @property
    def client_file(self) -> Path:
        """The file of `KRB5_CONFIG` and of `-Djava.security.krb5.conf`."""
        return self.directory / "krb5.conf"

    @property
    def environment(self) -> dict[str, str]:
        return {"KRB5_CONFIG": str(self.client_file), "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf")}

    def keytab(self, *principals: str, life: str = "10 hours") -> Path:
        """Adds principals of the realm, whose tickets live so long, and returns a file with their keys."""
        file = self.directory / f"{principals[0].replace('/', '-')}.keytab"
        for principal in principals:
            self._run("kadmin.local", "-q", f'addprinc -randkey -maxlife "{life}" {principal}')
            self._run("kadmin.local", "-q", f"ktadd -k {file} {principal}")
        return file

    def ticket(self, principal: str, keytab: Path) -> Path:
        """Returns a file for `KRB5CCNAME` with a ticket, as `kinit` makes it."""
        file = self.directory / f"{principal.replace('/', '-')}.ticket"
        self._run("kinit", "-c", str(file), "-k", "-t", str(keytab), principal)
        return file

    def _command(self) -> list[str]:
        values = {"realm": REALM, "address": self.address, "directory": self.directory}
        self.client_file.write_text(_CLIENT.format(**values))
        (self.directory / "kdc.conf").write_text(_SERVER.format(**values))
        if not (self.directory / "principal").exists():
            self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "the-master-key-of-a-test")
        variables = (f"{name}={value}" for name, value in self.environment.items())
        return ["/usr/bin/env", *variables, str(_found("krb5kdc")), "-n"]

    def _answers(self) -> bool:
        try:
            socket.create_connection((LOOPBACK, self.port), 1).close()
        except OSError:
            return False
        return True

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(_found(program)), *arguments],
            env={**os.environ, **self.environment},
            check=True,
            capture_output=True,
            timeout=60,
        )


def _found(program: str) -> str | None:
    """Debian installs the server's programs where a user's PATH does not look."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
