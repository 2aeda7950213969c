"""Aborts multipart uploads that no writer will complete.

On S3 a writer that is killed in the middle of a large file leaves such an upload behind. No listing of files shows it,
and the store charges for it. Guarantee: only uploads are aborted that began below the table's base path more than a day
ago, by the store's clock or this host's: no file takes so long. Nothing else in the bucket is touched. Raises what Java
raises.
"""

from __future__ import annotations

import time

import structlog

from sink.clients.java.errors import JAVA_ERRORS, message
from sink.hudi.client import HudiClient
from sink.storage.access import S3_SCHEMES, bucket_of, scheme_of

LOG = structlog.get_logger("sink.worker")
DAY = 24 * 3600.0
_REFUSALS = ("AccessDenied", "NotImplemented", "MethodNotAllowed")
"""S3's error codes of a key that may not list uploads, and of a server that has no such list."""


def abort_uploads(hudi: HudiClient, older_than: float = DAY) -> int:
    """Returns how many it aborted: 0 if the store does not list them, and the bucket's lifecycle rule has to do it."""
    base = hudi.base_path
    if scheme_of(base) not in S3_SCHEMES:
        return 0
    prefix = f"{base.partition('://')[2].partition('/')[2].strip('/')}/"
    path = hudi.jvm.org.apache.hadoop.fs.Path(base)
    helper = path.getFileSystem(hudi.storage_conf.unwrap()).getWriteOperationHelper()
    try:
        uploads = list(helper.listMultipartUploads(prefix))
        abandoned = [upload for upload in uploads if time.time() - upload.getInitiated().getTime() / 1000 >= older_than]
        for upload in abandoned:
            helper.abortMultipartUpload(upload)
    except JAVA_ERRORS as error:
        refusal = next((code for code in _REFUSALS if code in message(error)), None)
        if refusal is None:
            raise
        LOG.debug("uploads.unseen", bucket=bucket_of(base), reason=refusal)
        return 0
    if abandoned:
        LOG.info("uploads.aborted", count=len(abandoned), below=base)
    return len(abandoned)
