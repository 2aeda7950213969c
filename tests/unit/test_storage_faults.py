"""A library's error about a store becomes one sentence: the texts are real, from MinIO and Amazon."""

from __future__ import annotations

import pytest

from sink.storage.access import access_of
from sink.storage.faults import fault_in, fault_of_store
from sink.telemetry.redaction import redact_text

ACCESS = access_of({}, {"endpoint": "http://minio:9000"})


@pytest.mark.parametrize(
    ("error_text", "sentence", "lasts"),
    [
        (
            "When listing objects under key 't' in bucket 'lake': AWS Error INVALID_ACCESS_KEY_ID during ListObjectsV2"
            " operation: The Access Key Id you provided does not exist in our records.",
            "storage.s3.access.key: the store at http://minio:9000 does not know the key. Correct it.",
            True,
        ),
        (
            "AWS Error UNKNOWN (HTTP status 400) during ListObjectsV2 operation: ExpiredToken",
            "target.base.path: storage.s3.session.token has expired or is not valid. Set a new one.",
            True,
        ),
        (
            "com.amazonaws.services.s3.model.AmazonS3Exception: The request signature we calculated does not match the"
            " signature you provided. (Service: Amazon S3; Status Code: 403; Error Code: SignatureDoesNotMatch)",
            "target.base.path: the store at http://minio:9000 says that storage.s3.secret.key does not match the access"
            " key. Correct it.",
            True,
        ),
        (
            "org.apache.hadoop.fs.s3a.UnknownStoreException: `s3a://lake/t': getFileStatus: The specified bucket does"
            " not exist (Service: Amazon S3; Status Code: 404; Error Code: NoSuchBucket)",
            "target.base.path: there is no bucket lake at http://minio:9000. Create it, or correct the name.",
            True,
        ),
        (
            "The authorization header is malformed; the region 'eu-central-1' is wrong; expecting 'us-west-2' (Service:"
            " Amazon S3; Status Code: 400; Error Code: AuthorizationHeaderMalformed)",
            "storage.s3.region: the bucket lake is in another region, us-west-2. Correct it.",
            True,
        ),
        (
            "AWS Error NETWORK_CONNECTION during ListObjectsV2 operation: curlCode: 60, SSL peer certificate or SSH"
            " remote key was not OK",
            "storage.s3.endpoint: the certificate of http://minio:9000 is not trusted here. Add its issuer to the"
            " host's (and Java's) certificates.",
            True,
        ),
        (
            "java.lang.RuntimeException: java.lang.ClassNotFoundException: Class"
            " org.apache.hadoop.fs.s3a.S3AFileSystem not found",
            "target.base.path: Java has no file system for s3a://. Remove the file system's jars from spark.jars, or"
            " name all that it needs there.",
            True,
        ),
        (
            "getFileStatus on s3a://lake/t: com.amazonaws.services.s3.model.AmazonS3Exception: Forbidden (Service:"
            " Amazon S3; Status Code: 403; Error Code: 403 Forbidden)",
            "target.base.path: the key has no right to do this below s3a://lake/t. Grant it to list the bucket, and"
            " to get, put and delete objects there.",
            True,
        ),
        (
            "curlCode: 7, Could not connect to server; Details: Failed to connect to minio port 9000",
            "storage.s3.endpoint: http://minio:9000 does not answer. Start it, or correct the address.",
            False,
        ),
        (
            "curlCode: 6, Could not resolve hostname; Details: Could not resolve host: minio",
            "storage.s3.endpoint: the host of http://minio:9000 is not known. Correct it, or the name service.",
            False,
        ),
        (
            "AWS Error UNKNOWN (HTTP status 501) during PutObject operation: A header you provided implies"
            " functionality that is not implemented",
            "target.base.path: http://minio:9000 does not support checksums after an object's data. Unset"
            " AWS_REQUEST_CHECKSUM_CALCULATION.",
            True,
        ),
        (
            "com.amazonaws.SdkClientException: Unable to execute HTTP request: The target server failed to respond",
            "storage.s3.endpoint: http://minio:9000 does not answer. Start it, or correct the address.",
            False,
        ),
        (
            "Server returned non-2xx status code: 403 Forbidden: <?xml version='1.0'?><Error><Code>RequestTimeTooSkewed"
            "</Code></Error>",
            "target.base.path: the clocks of this host and of http://minio:9000 differ by more than 15 minutes. Correct"
            " this host's clock.",
            False,
        ),
        (
            "Please reduce your request rate (Service: Amazon S3; Status Code: 503; Error Code: SlowDown)",
            "target.base.path: http://minio:9000 refuses requests at the moment. The sink tries again.",
            False,
        ),
        (
            "PUT of `/t/f': AWS Error UNKNOWN (HTTP status 400) during PutObject operation: Unable to parse"
            " ExceptionName: InvalidArgument Message: Unsupported header 'x-amz-sdk-checksum-algorithm'",
            "target.base.path: http://minio:9000 does not support checksums after an object's data. Unset"
            " AWS_REQUEST_CHECKSUM_CALCULATION.",
            True,
        ),
        (
            "AWS Error ACCESS_DENIED (HTTP status 403) during PutObject operation: QuotaExceeded",
            "target.base.path: http://minio:9000 has no room left for the bucket lake. Make room, or raise its quota.",
            False,
        ),
    ],
)
def test_a_fault_is_one_sentence_and_known_to_last_or_not(error_text: str, sentence: str, lasts: bool) -> None:
    fault = fault_in(error_text, "s3a://lake/t", ACCESS)
    assert fault is not None
    assert (fault.sentence, fault.lasts) == (sentence, lasts)
    assert redact_text(sentence) == sentence, "a log hides words of the sentence"


NO_ANSWER = "storage.s3.endpoint: http://minio:9000 does not answer. Start it, or correct the address."
REFUSAL = "target.base.path: http://minio:9000 refuses requests at the moment. The sink tries again."


@pytest.mark.parametrize(
    ("error_text", "sentence"),
    [
        ("java.net.SocketTimeoutException: Read timed out", NO_ANSWER),
        (
            "listStatus on s3a://lake/t: com.amazonaws.SdkClientException: Unable to execute HTTP request: Premature"
            " end of Content-Length delimited message body (expected: 1,205; received: 602); caused by"
            " com.amazonaws.thirdparty.apache.http.ConnectionClosedException: Premature end of Content-Length delimited"
            " message body (expected: 1,205; received: 602)",
            NO_ANSWER,
        ),
        ("com.amazonaws.SdkClientException: Unable to execute HTTP request: Broken pipe (Write failed)", NO_ANSWER),
        (
            "listStatus on s3a://lake/t: com.amazonaws.services.s3.model.AmazonS3Exception: X (Service: Amazon S3;"
            " Status Code: 429; Error Code: 429 X; Request ID: null)",
            REFUSAL,
        ),
        (
            "AWS Error UNKNOWN (HTTP status 429) during ListObjectsV2 operation: Unable to parse ExceptionName:"
            " TooManyRequests Message: Refused",
            REFUSAL,
        ),
        (
            "When completing multiple part upload for key 't/f' in bucket 'lake': AWS Error NO_SUCH_UPLOAD during"
            " CompleteMultipartUpload operation: The specified multipart upload does not exist.",
            REFUSAL,
        ),
    ],
)
def test_a_write_is_not_to_blame_for_answers_that_hang_break_off_or_ask_for_fewer_requests(
    error_text: str, sentence: str
) -> None:
    fault = fault_of_store(f"s3a://lake/t: {error_text}", "s3a://lake/t", ACCESS)
    assert fault is not None
    assert (fault.sentence, fault.lasts) == (sentence, False)


def test_what_nobody_knows_and_what_a_disk_says_is_no_fault_of_a_store() -> None:
    assert fault_in("Not an Avro data file", "s3a://lake/t", ACCESS) is None
    assert fault_in("AccessDenied", "/data/t", ACCESS) is None


def test_a_store_that_is_none_of_amazons_is_not_told_of_amazons_settings() -> None:
    assert fault_in("Connection refused", "abfs://lake@host/t", access_of({})) is None
    missing = fault_in('No FileSystem for scheme "gs"', "gs://lake/t", access_of({}))
    assert missing is not None
    assert "Java has no file system for gs://" in missing.sentence


@pytest.mark.parametrize(
    ("error_text", "sentence"),
    [
        (
            "PythonException: ConnectionError: hdfs://lake: of a datanode: Connection refused (os error 111)",
            "target.base.path: a datanode of lake does not answer. Start it, or wait until the namenode drops it.",
        ),
        (
            "OSError: hdfs://lake: Connection refused (os error 111)",
            "target.base.path: no namenode of lake answers as the active one. Start it, or correct its address.",
        ),
        (
            "OSError: hdfs://lake: RPC listener disconnected",
            "target.base.path: a namenode of lake ended the connection. Start it, or, if it asks for Kerberos, set"
            " spark.hadoop.hadoop.security.authentication=kerberos.",
        ),
    ],
)
def test_of_hdfs_a_datanode_and_a_namenode_are_told_apart(error_text: str, sentence: str) -> None:
    fault = fault_of_store(error_text, "hdfs://lake/t", access_of({}))
    assert fault is not None
    assert (fault.sentence, fault.lasts) == (sentence, False)
