"""Recognises faults of a table's store in the error texts of libraries: one sentence, with what to do.

Guarantee: the same fault gives the same sentence from Hadoop, pyarrow and hudi-rs, and says whether it can pass by
itself. Voided by stores with error codes of their own: then there is no fault, and the caller shows the library's text.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sink.storage.access import HDFS_SCHEMES, S3_SCHEMES, Access, bucket_of, scheme_of


@dataclass(frozen=True, slots=True)
class Fault:
    sentence: str
    lasts: bool
    """Whether the fault stays until somebody changes settings, keys or the store."""


@dataclass(frozen=True, slots=True)
class _Kind:
    pattern: str
    sentence: str
    lasts: bool = True


_NO_FILE_SYSTEM = _Kind(
    r"No FileSystem for scheme|ClassNotFoundException: Class org\.apache\.hadoop\.fs\.(?:s3a|azurebfs)"
    r"|ClassNotFoundException: Class com\.google\.cloud\.hadoop|NoClassDefFoundError",
    "target.base.path: Java has no file system for {scheme}://. Remove the file system's jars from spark.jars, or name"
    " all that it needs there.",
)
_KINDS_OF_S3 = (
    _NO_FILE_SYSTEM,
    _Kind(
        r"InvalidAccessKeyId|INVALID_ACCESS_KEY_ID|Access Key Id you provided does not exist|InvalidClientTokenId",
        "storage.s3.access.key: the store at {server} does not know the key. Correct it.",
    ),
    _Kind(
        r"SignatureDoesNotMatch|SIGNATURE_DOES_NOT_MATCH|signature we calculated does not match",
        "target.base.path: the store at {server} says that storage.s3.secret.key does not match the access key. Correct"
        " it.",
    ),
    _Kind(
        r"ExpiredToken|EXPIRED_TOKEN|InvalidToken|INVALID_TOKEN|token (?:included in the request )?(?:is|has) expired",
        "target.base.path: storage.s3.session.token has expired or is not valid. Set a new one.",
    ),
    _Kind(
        r"NoSuchBucket|NO_SUCH_BUCKET|specified bucket does not exist|bucket '?[\w.-]+'? not found"
        r"|UnknownStoreException",
        "target.base.path: there is no bucket {bucket} at {server}. Create it, or correct the name.",
    ),
    _Kind(
        r"AuthorizationHeaderMalformed|PermanentRedirect|region '?[\w-]*'? is wrong|IllegalLocationConstraint"
        r"|AWSRedirectException|Received redirect|status code: 301|HTTP status 301|InvalidRegion",
        "storage.s3.region: the bucket {bucket} is in another region{region}. Correct it.",
    ),
    _Kind(
        r"PKIX path|SSLHandshakeException|SSL peer certificate|certificate verify failed|curlCode: 60|invalid peer"
        r" certificate|UnknownIssuer",
        "storage.s3.endpoint: the certificate of {server} is not trusted here. Add its issuer to the host's (and"
        " Java's) certificates.",
    ),
    _Kind(
        r"Unable to load (?:AWS )?credentials|No AWS Credentials provided|NoAuthWithAWSException|no EC2 metadata"
        r"|Unable to find credentials",
        "storage.s3.access.key: there are no keys in the settings, the environment, a profile or the instance. Set"
        " storage.s3.access.key and storage.s3.secret.key.",
    ),
    _Kind(
        r"x-amz-trailer|x-amz-(?:sdk-)?checksum-|STREAMING-UNSIGNED-PAYLOAD|NotImplemented|NOT_IMPLEMENTED"
        r"|functionality that is not implemented|MissingContentLength|XAmzContentSHA256Mismatch|keeps more than it is"
        r" given",
        "target.base.path: {server} does not support checksums after an object's data. Unset"
        " AWS_REQUEST_CHECKSUM_CALCULATION.",
    ),
    _Kind(
        r"RequestTimeTooSkewed|REQUEST_TIME_TOO_SKEWED",
        "target.base.path: the clocks of this host and of {server} differ by more than 15 minutes. Correct this host's"
        " clock.",
        lasts=False,
    ),
    _Kind(
        r"QuotaExceeded|StorageFull|InsufficientStorage|Insufficient Storage|status code: 507|HTTP status 507",
        "target.base.path: {server} has no room left for the bucket {bucket}. Make room, or raise its quota.",
        lasts=False,
    ),
    _Kind(
        r"AccessDenied|ACCESS_DENIED|Access Denied|Forbidden|status code: 403|HTTP status 403",
        "target.base.path: the key has no right to do this below {base_path}. Grant it to list the bucket, and to get,"
        " put and delete objects there.",
    ),
    _Kind(
        r"UnknownHostException|resolve host|dns error|Name or service not known|curlCode: 6\b",
        "storage.s3.endpoint: the host of {server} is not known. Correct it, or the name service.",
        lasts=False,
    ),
    _Kind(
        r"Connection ?refused|ConnectException|Connect(?:ion)? ?time(?:d ?)?out|ConnectTimeoutException"
        r"|curlCode: (?:7|28)\b|tcp connect error|No route to host|NETWORK_CONNECTION|error sending request"
        r"|Connection reset|connection closed|NoHttpResponse|failed to respond|Could not connect|SocketTimeout"
        r"|Read timed out|operation timed out|ConnectionClosedException|Premature end of|error decoding response body"
        r"|Unable to execute HTTP request",
        "storage.s3.endpoint: {server} does not answer. Start it, or correct the address.",
        lasts=False,
    ),
    _Kind(
        # A repeated request finds no upload if the answer that it is complete was lost.
        r"SlowDown|SLOW_DOWN|ServiceUnavailable|Service Unavailable|InternalError|INTERNAL_FAILURE|AWSStatus50\d"
        r"|AWSServiceThrottled|TooManyRequests|NoSuchUpload|NO_SUCH_UPLOAD|status code: (?:429|50\d)"
        r"|HTTP status (?:429|50\d)",
        "target.base.path: {server} refuses requests at the moment. The sink tries again.",
        lasts=False,
    ),
)
_KINDS_OF_HDFS = (
    _Kind(
        r"Client cannot authenticate via:\[TOKEN, KERBEROS\]|asks for Kerberos|GSS initiate failed",
        "target.base.path: {server} asks for Kerberos, and there is no good ticket. Run kinit, or set"
        " spark.kerberos.principal and spark.kerberos.keytab.",
        lasts=False,
    ),
    _Kind(
        r"SIMPLE authentication is not enabled",
        "target.base.path: {server} asks for Kerberos. Set spark.hadoop.hadoop.security.authentication=kerberos.",
    ),
    _Kind(
        r"listener disconnected",
        "target.base.path: a namenode of {server} ended the connection. Start it, or, if it asks for Kerberos, set"
        " spark.hadoop.hadoop.security.authentication=kerberos.",
        lasts=False,
    ),
    _Kind(
        r"(?P<detail>Permission denied: user=[^,]+, access=\w+, inode=\"[^\"]*\":[\w:.-]+)",
        "target.base.path: {detail}. Create the directory for that user, or set HADOOP_USER_NAME.",
    ),
    _Kind(
        r"neither a host nor a name service|UnknownHostException",
        "target.base.path: {server} is neither a known host nor a known name service. Describe it in the files of"
        " HADOOP_CONF_DIR, or by spark.hadoop.dfs.ha.namenodes.{server}.",
        lasts=False,
    ),
    _Kind(
        r"of a datanode: .*(?:refused|reset|disconnected|timed? ?out|closed)|could only be written to \d+ of"
        r"|All datanodes .* are bad|firstBadLink",
        "target.base.path: a datanode of {server} does not answer. Start it, or wait until the namenode drops it.",
        lasts=False,
    ),
    _Kind(
        r"StandbyException|SafeModeException|RetriableException|Connection ?refused|ConnectException|No route to host"
        r"|Connection reset|timed? ?out",
        "target.base.path: no namenode of {server} answers as the active one. Start it, or correct its address.",
        lasts=False,
    ),
)
_KINDS: Mapping[str, tuple[_Kind, ...]] = {
    **dict.fromkeys(S3_SCHEMES, _KINDS_OF_S3),
    **dict.fromkeys(HDFS_SCHEMES, _KINDS_OF_HDFS),
}
_MARKS: Mapping[str, re.Pattern[str]] = {
    **dict.fromkeys(S3_SCHEMES, re.compile(r"AWS Error|amazonaws|\bs3[an]?://|Hoodie\w*Exception")),
    **dict.fromkeys(
        HDFS_SCHEMES, re.compile(r"hdfs://|[Nn]ame[Nn]ode|[Dd]ata[Nn]ode|apache\.hadoop|Hoodie\w*Exception")
    ),
}
"""Words that only occur in error texts of the store's libraries or of Hudi."""
_REGION = re.compile(r"(?:expecting|expected) '?\"?(?P<name>[a-z]{2}(?:-[a-z]+)+-\d)", re.IGNORECASE)


def fault_in(error_text: str, base_path: str, access: Access) -> Fault | None:
    """Returns the fault in the text; None if it has no known one."""
    if scheme_of(base_path) in ("", "file"):
        return None
    region = _REGION.search(error_text)
    fields = {
        "server": server_of(base_path, access),
        "bucket": bucket_of(base_path),
        "region": f", {region['name']}" if region else "",
        "scheme": scheme_of(base_path),
        "base_path": base_path,
    }
    for kind in _KINDS.get(scheme_of(base_path), (_NO_FILE_SYSTEM,)):
        if match := re.search(kind.pattern, error_text, re.IGNORECASE):
            return Fault(kind.sentence.format(**fields, **match.groupdict()), kind.lasts)
    return None


def fault_of_store(error_text: str, base_path: str, access: Access) -> Fault | None:
    """Returns the fault in a text that may also come from another server, such as Kafka or ZooKeeper."""
    mark = _MARKS.get(scheme_of(base_path))
    if mark is None or not (mark.search(error_text) or f"{bucket_of(base_path)}: " in error_text):
        return None
    return fault_in(error_text, base_path, access)


def server_of(base_path: str, access: Access) -> str:
    """Returns the server of the table: its address, or a name service."""
    bucket = bucket_of(base_path)
    return (access.option(bucket, "endpoint") or "Amazon") if scheme_of(base_path) in S3_SCHEMES else bucket
