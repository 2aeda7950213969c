"""Adds to mkdocs links to source files, and Mermaid without another host.

A page links to a file of the repository as `../coordination/...`, which a code host follows. The site has a page of its
own for each file that is linked. mkdocs loads this module by its path.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

from coordination.errors import SinkError
from tests.docs import mermaid

LOG = logging.getLogger("mkdocs.hooks")
ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "assets/mermaid.min.js"
_LINK = re.compile(r"(?<=\]\()(?P<path>\.\.?/[^)#\s]+)(?P<anchor>#[^)\s]*)?(?=\))")
_LANGUAGES = {".py": "python", ".yml": "yaml", ".yaml": "yaml", ".sh": "bash", ".json": "json"}


def on_files(files: Files, config: Any) -> Files:
    """Adds a page for each file outside of docs/ that a page links to, and Mermaid."""
    pages = [file for file in files if file.is_documentation_page()]
    linked = {target for page in pages for target in _outside(page.src_uri, page.content_string).values()}
    for target in sorted(linked):
        page = File.generated(config, _page_of(target), content=_source(target))
        page.inclusion = page.inclusion.NOT_IN_NAV
        files.append(page)
    try:
        files.append(File.generated(config, SCRIPT, content=mermaid.script()))
        config["extra_javascript"].append(SCRIPT)
    except SinkError as error:
        # The theme's default: pages with diagrams load Mermaid from another host.
        LOG.info("Mermaid is not in the site: %s", error)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turns links to files of the repository into links to their pages."""
    source = page.file.src_uri
    up = "../" * (len(PurePosixPath(source).parts) - 1)
    targets = {} if source.startswith("source/") else _outside(source, markdown)
    return _LINK.sub(lambda link: f"{up}{_page_of(targets[link[0]])}" if link[0] in targets else link[0], markdown)


def _outside(source: str, markdown: str) -> dict[str, str]:
    """Returns the links of a page that leave docs/, with their targets in the repository."""
    targets = {}
    for link in _LINK.finditer(markdown):
        target = (ROOT / "docs" / source).parent.joinpath(link["path"]).resolve()
        if target.exists() and not target.is_relative_to(ROOT / "docs"):
            targets[link[0]] = str(target.relative_to(ROOT))
    return targets


def _page_of(target: str) -> str:
    return f"source/{target.replace('.', '-')}.md"


def _source(target: str) -> str:
    path = ROOT / target
    if path.is_dir():
        modules = sorted(str(module.relative_to(ROOT)) for module in path.rglob("*.py"))
        content, language = "\n".join(modules), "text"
    else:
        content, language = path.read_text(), _LANGUAGES.get(path.suffix, "text")
    if path.suffix == ".md":
        return re.sub(r"\]\((?![a-z]+:)[^)]*\)", "]", content)
    return f"# {target}\n\n````{language}\n{content.rstrip()}\n````\n"
