"""Extension of Python-Markdown that nests lists by two spaces, as GitHub does, instead of four."""

from __future__ import annotations

from markdown import Markdown
from markdown.blockprocessors import build_block_parser
from markdown.extensions import Extension


class GitHubIndents(Extension):  # type: ignore[misc]
    """Builds the parser of blocks again, since its parts keep the width; to be the first extension."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.tab_length = 2
        md.parser = build_block_parser(md)
