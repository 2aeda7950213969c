"""The page: one document, assembled from its files when the worker starts. It loads nothing else."""

from __future__ import annotations

import gzip
import hashlib
from base64 import b64encode
from pathlib import Path

from sink.http.answers import HttpResponse

_HERE = Path(__file__).parent


def _text(name: str) -> str:
    return (_HERE / name).read_text("utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_STYLE, _SCRIPT = _text("page.css"), _text("page.js") + _text("detail.js")
DOCUMENT = _text("page.html").replace("/* page.css */", _STYLE).replace("/* page.js */", _SCRIPT)
POLICY = (
    f"default-src 'none'; script-src {_digest(_SCRIPT)}; style-src {_digest(_STYLE)}; connect-src 'self';"
    " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Only the page's own script and style run, even if the text of a record got into the document."""
ANSWER = HttpResponse(200, DOCUMENT.encode(), "text/html; charset=utf-8", gzip.compress(DOCUMENT.encode(), 6))
