"""`python -m tests.chaos.auditor DIRECTORY`: audits a kept run. Prints one JSON object; exit status 0 if nothing was
found, else 1.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.chaos.auditor import FINDINGS, audit

report = audit(Path(sys.argv[1]))
print(json.dumps(report))
sys.exit(int(any(report[name] for name in FINDINGS)))
