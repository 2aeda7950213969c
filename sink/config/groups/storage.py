"""Settings of the object store that the table is in."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator

from sink.config.fields import Choice, Secret, SettingGroup, setting
from sink.config.values import Text, require_str


def _server(value: Any) -> str:
    """Returns `https://host:port`, or `host:port`, which means TLS."""
    address = require_str(value).rstrip("/")
    parts = urlsplit(address if "://" in address else f"https://{address}")
    try:
        port = parts.port
    except ValueError:
        port = 0
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or parts.path or parts.query:
        raise ValueError("is not a server's address. Write it like https://minio:9000, without a bucket.")
    if parts.username is not None:
        raise ValueError("carries a login. Give it through storage.s3.access.key and storage.s3.secret.key instead.")
    return address


Server = Annotated[str, BeforeValidator(_server)]


class StorageSettings(SettingGroup):
    s3_endpoint: Server | None = setting(
        "storage.s3.endpoint",
        "For `s3a://`: a server that speaks Amazon's protocol, like `https://minio:9000`; `http://` for one without"
        " TLS. Default: `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, else Amazon's own servers.",
        default=None,
    )
    s3_region: Text | None = setting(
        "storage.s3.region",
        "Region of the bucket. Default: `AWS_REGION`, `AWS_DEFAULT_REGION`, else what Amazon says of the bucket, or"
        " `us-east-1` where there is an endpoint.",
        default=None,
    )
    s3_access_key: Secret | None = setting(
        "storage.s3.access.key",
        "Access key of everything that opens the table. Default: `AWS_ACCESS_KEY_ID` with `AWS_SECRET_ACCESS_KEY`, else"
        " what profile, web identity, container or instance give.",
        default=None,
    )
    s3_secret_key: Secret | None = setting("storage.s3.secret.key", "The secret that belongs to it.", default=None)
    s3_session_token: Secret | None = setting(
        "storage.s3.session.token", "Token of keys that were given for a time.", default=None
    )
    s3_path_style: Annotated[Literal["true", "false"] | None, Choice] = setting(
        "storage.s3.path.style",
        "Whether the bucket stands in the path of a request, not in the host's name. Default: `true` where the endpoint"
        " is not Amazon's.",
        default=None,
    )

    @property
    def s3_by_hadoops_names(self) -> dict[str, str]:
        """The S3 settings that are set, by their names below `fs.s3a.`; it includes secrets."""
        keys = (self.s3_access_key, self.s3_secret_key, self.s3_session_token)
        access, secret, token = (key.get_secret_value() if key else None for key in keys)
        options = {
            "endpoint": self.s3_endpoint,
            "endpoint.region": self.s3_region,
            "access.key": access,
            "secret.key": secret,
            "session.token": token,
            "path.style.access": self.s3_path_style,
        }
        return {name: value for name, value in options.items() if value}
