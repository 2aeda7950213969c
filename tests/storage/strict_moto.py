"""`python -m tests.storage.strict_moto ...`: moto's server, able to check what Amazon's library for Java has signed.

moto signs a request again with botocore and compares the signatures. botocore leaves out `User-Agent`, which the
library for Java signs: moto would refuse its requests with 403 for any keys, although Amazon's own servers accept them.
"""

from __future__ import annotations

import sys

import botocore.auth
from moto.server import main

if __name__ == "__main__":
    botocore.auth.SIGNED_HEADERS_BLACKLIST.remove("user-agent")
    main(sys.argv[1:])
