"""`python -m tests.storage.strict_moto ...`: moto's server, able to check what Amazon's library for Java has signed.

moto signs a request again by botocore and compares. botocore leaves `User-Agent` out, which the library for Java signs:
so its requests would be turned away with 403 whatever the keys are, and Amazon's own servers take them.
"""

from __future__ import annotations

import sys

import botocore.auth
from moto.server import main

if __name__ == "__main__":
    botocore.auth.SIGNED_HEADERS_BLACKLIST.remove("user-agent")
    main(sys.argv[1:])
