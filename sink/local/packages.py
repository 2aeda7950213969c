"""`python -m sink.local.packages`: now `python -m sink.clients.artifacts`."""

import sys

from sink.clients.artifacts import main

if __name__ == "__main__":
    sys.exit(main())
