"""Reads Mermaid's script from its WebJar, which is cached as other downloads are."""

from __future__ import annotations

import zipfile

from sink.clients.java.installation import cache_home, download_into

VERSION = "11.6.0"
"""The newest that Maven Central has as a WebJar."""
_IVY = f"""\
<ivy-module version="2.0"><info organisation="hudi-keeper-sink" module="site"/><dependencies>
<dependency org="org.webjars.npm" name="mermaid" rev="{VERSION}" conf="*->default" transitive="false"/>
</dependencies></ivy-module>
"""


def script() -> bytes:
    """Returns the script; downloads it the first time. Raises SinkError."""
    directory = cache_home() / "jars" / f"mermaid-{VERSION}"
    if not directory.is_dir():
        directory.parent.mkdir(parents=True, exist_ok=True)
        download_into("mermaid", _IVY, directory)
    with zipfile.ZipFile(directory / f"mermaid-{VERSION}.jar") as jar:
        return jar.read(f"META-INF/resources/webjars/mermaid/{VERSION}/dist/mermaid.min.js")
