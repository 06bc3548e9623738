"""Hooks of mkdocs: the pages from outside docs/, those that are generated, and words for the search."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docsite import commands, notebooks
from docsite.indents import GitHubIndents
from docsite.keywords import KEYWORDS

ROOT = Path(__file__).parent.parent
TOP_PAGES = {
    "README.md": "index.html",
    "CHANGELOG.md": "changelog/index.html",
    "CONTRIBUTING.md": "contributing/index.html",
    "SECURITY.md": "security-policy/index.html",
}
"""The pages in the top folder, and their place in the site."""


class PageFile(File):
    """A page that is not a markdown file."""

    def is_documentation_page(self) -> bool:
        return True


def on_config(config: MkDocsConfig) -> None:
    """Let lists nest as on GitHub."""
    config.markdown_extensions.insert(0, GitHubIndents())


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return all files under their path from the top folder, so that links work here as on GitHub."""
    docs = Path(config.docs_dir)
    ours = [file for file in files if file.src_dir == config.docs_dir]
    kept = [file for file in files if file.src_dir != config.docs_dir]
    moved = [_file(config, (docs / file.src_uri).relative_to(ROOT), file.dest_uri) for file in ours]
    tops = [_file(config, Path(name), place) for name, place in TOP_PAGES.items()]
    return Files([*kept, *moved, *tops, *_assets(config), *_own_pages(config), *_commands(config)])


def on_page_markdown(markdown: str, page: Page, **_: object) -> None:
    """Let the search find a page by its keywords."""
    page.meta["tags"] = list(KEYWORDS.get(page.file.src_uri, ()))


def _file(config: MkDocsConfig, path: Path, place: str, text: str | None = None) -> File:
    if path.suffix == ".ipynb":
        place, text = f"{place.removesuffix('.ipynb')}/index.html", notebooks.markdown(ROOT / path)
    kind = PageFile if text is not None else File
    source = None if text is not None else str(ROOT)
    file = kind(path.as_posix(), source, config.site_dir, config.use_directory_urls, dest_uri=place)
    if text is not None:
        file.content_string = text
    elif path.name == "commands.md":
        file.content_string = commands.overview(_link)
    if path.name == "README.md" and path.parent.name:
        file.name = path.parent.name  # an ordinary page, not the one of its section
    return file


def _assets(config: MkDocsConfig) -> list[File]:
    folder = ROOT / "docsite"
    found = (path.relative_to(folder).as_posix() for path in (folder / "assets").iterdir())
    return [File(name, str(folder), config.site_dir, config.use_directory_urls) for name in found]


def _own_pages(config: MkDocsConfig) -> list[File]:
    """Return the pages of the site alone, which mean nothing without mkdocs."""
    folder = ROOT / "docsite" / "pages"
    pages = [path.relative_to(folder) for path in sorted(folder.rglob("*.md"))]
    return [_file(config, "docs" / page, _place(page), (folder / page).read_text()) for page in pages]


def _commands(config: MkDocsConfig) -> list[File]:
    return [
        _file(
            config, Path(f"docs/commands/{name}.md"), f"commands/{name}/index.html", commands.reference(name)
        )
        for name in commands.collections()
    ]


def _place(path: Path) -> str:
    folder = path.parent if path.stem == "index" else path.with_suffix("")
    return (folder / "index.html").as_posix()


def _link(name: str) -> str:
    return f"[`{name}`](commands/{name.partition('.')[0]}.md#{name})"
