"""The documentation site: it builds without warnings, is complete, and needs no other host."""

import functools
import http.server
import inspect
import json
import posixpath
import re
import subprocess
import sys
import threading
from collections import Counter
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt

import openpai_tasks
from docsite.keywords import KEYWORDS
from openpai_tasks import runtime, tasks
from tests import browser
from tests.needs import require

require("mkdocs")

ROOT = Path(__file__).parent.parent
SOURCES = {
    "README.md": "",
    "CHANGELOG.md": "changelog/",
    "CONTRIBUTING.md": "contributing/",
    "SECURITY.md": "security-policy/",
    **{f"docs/{page.name}": f"{page.stem}/" for page in sorted((ROOT / "docs").glob("*.md"))},
}
BLOCKS = ("blockquote", "h2", "h3", "h4", "img", "li", "ol", "pre", "tr", "ul")
BROKEN = {
    "a missing page": "[other](missing.md)",
    "a missing anchor": "[other](other.md#missing)",
    "an anchor that this page lacks": "[above](#missing)",
    "a missing picture": "![picture](missing.png)",
}


SEARCHES = {
    "hyperparameter": "sweeps/",
    "wandb": "metrics/",
    "tensorboard": "metrics/",
    "resume training": "runtime/",
    "hdfs mount": "storage/",
    "queue": "jobs/",
    "preempt": "afterwards/",
    "docker image": "images/",
    "multi-node": "runtime/",
    "ddp": "pytorch/",
    "secret": "jobs/",
}
"""What people search for, and the page that they need."""


class Site:
    """The pages of a built site by their path, which is empty for the home page."""

    def __init__(self, folder):
        self.folder = folder
        files = sorted(folder.rglob("*.html"))
        self.pages = {
            path.relative_to(folder).as_posix().removesuffix("index.html"): path.read_text() for path in files
        }
        self.anchors = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in self.pages.items()}

    def article(self, path):
        text = self.pages[path]
        return text[text.index("<article") : text.index("</article>")]

    def has(self, path, link):
        """Whether a link of a page leads to a file of the site, and to an anchor that is there."""
        target = posixpath.normpath(posixpath.join("/", path, "." if not link.path else link.path))
        file = self.folder / target.lstrip("/")
        page = "" if target == "/" else target.lstrip("/") + ("/" if file.is_dir() else "")
        is_page = page in self.pages
        return (is_page or file.is_file()) and (not link.fragment or link.fragment in self.anchors[page])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "invoke", "docs.build", "--to", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    return Site(folder)


def test_every_internal_link_and_anchor_leads_somewhere(site):
    assert site.has("jobs/", urlsplit("../commands/job/#job.sub"))
    assert not site.has("jobs/", urlsplit("../commands/job/#job.missing"))
    assert not site.has("jobs/", urlsplit("../missing/"))
    broken = []
    for path, text in site.pages.items():
        start = "" if path == "404.html" else path
        for address in set(re.findall(r'(?:href|src)="([^"]*)"', text)):
            link = urlsplit(unquote(unescape(address)))
            if not link.scheme and not site.has(start, link):
                broken.append(f"{path or 'home'}: {address}")
    assert len(site.pages) > 50 and not broken


@pytest.mark.parametrize("why", BROKEN)
def test_a_broken_link_stops_the_build(tmp_path, why):
    from mkdocs.commands.build import build
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort

    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "other.md").write_text("# Other\n\n## There\n")
    (docs / "index.md").write_text("# Home\n\n[other](other.md#there)\n")
    small = {"docs_dir": str(docs), "site_dir": str(tmp_path / "site"), "theme": "mkdocs"}
    small |= {"nav": ["index.md", "other.md"], "hooks": [], "plugins": [], "extra_css": []}
    load = functools.partial(load_config, str(ROOT / "mkdocs.yml"), **small)
    build(load())
    (docs / "index.md").write_text(f"# Home\n\n{BROKEN[why]}\n")
    with pytest.raises(Abort, match="1 warning"):
        build(load())


@pytest.mark.parametrize("words", SEARCHES)
def test_the_search_index_finds_a_page_by_the_words_that_people_use(site, words):
    """Tags count as much as titles, and a thousand times as much as text."""
    index = json.loads((site.folder / "search" / "search_index.json").read_text())
    assert index["config"]["fields"]["tags"] == index["config"]["fields"]["title"] == {"boost": 1000.0}
    tags = {entry["location"]: " ".join(entry.get("tags", [])).split() for entry in index["docs"]}
    found = {page for page, known in tags.items() if set(words.split()) <= set(known) and "#" not in page}
    assert SEARCHES[words] in found and len(found) <= 3


def test_keywords_are_of_existing_pages():
    assert not [page for page in KEYWORDS if not (ROOT / page).exists()]


def test_the_session_is_a_still_picture_until_it_is_clicked(site):
    home = site.article("")
    assert re.search(r'<a href="images/session.svg"><img [^>]*src="images/session-still.svg"', home)
    assert "assets/session.js" in site.pages[""]


def test_every_command_has_a_section_and_every_flag_a_row(site):
    for name in openpai_tasks.namespace().task_names:
        page = name.partition(".")[0]
        assert name in site.anchors[f"commands/{page}/"]
        assert f'href="{page}/#{name}"' in site.pages["commands/"]
    sub = site.article("commands/job/").partition('id="job.sub"')[2].partition("<h2")[0]
    assert "<code>pai sub</code>" in sub
    for flag in ("-j", "--job-name", "--max-time", "--follow", "COMMAND"):
        assert f"<code>{flag}</code>" in sub


def test_every_public_name_has_an_entry(site):
    inside = [
        name
        for name, value in vars(runtime).items()
        if not name.startswith("_")
        and getattr(value, "__module__", "") == runtime.__name__
        and (inspect.isclass(value) or inspect.isfunction(value))
    ]
    wanted = {f"openpai_tasks.{name}" for name in openpai_tasks.__all__}
    wanted |= {f"openpai_tasks.tasks.{name}" for name in tasks.__all__ if name not in openpai_tasks.__all__}
    wanted |= {f"openpai_tasks.runtime.{name}" for name in inside}
    entries = set().union(*(ids for path, ids in site.anchors.items() if path.startswith("api/")))
    assert len(inside) > 10 and sorted(wanted - entries) == []
    assert {"openpai_tasks.Job.wait", "openpai_tasks.Job.one_liner"} <= entries


def test_pages_have_the_same_parts_here_as_on_github(site):
    markdown = MarkdownIt("commonmark").enable("table")
    for source, path in SOURCES.items():
        github = markdown.render((ROOT / source).read_text())
        assert parts(site.article(path)) == parts(github), source


def parts(html):
    """Count the headings, items, rows and so on of a page."""
    return Counter(tag for tag in re.findall(r"<(\w+)", html) if tag in BLOCKS)


def test_no_page_loads_anything_from_another_host(site):
    loading = re.compile(r"<(?:script|link|img|iframe|source|video|object)\b[^>]*")
    for path, text in site.pages.items():
        for tag in loading.findall(text):
            assert not re.search(r'(?:src|href|data)="?(?:https?:)?//', tag), f"{path}: {tag}"
    for file in site.folder.rglob("*.css"):
        assert not re.search(r"url\(.?(?:https?:)?//|@import", file.read_text()), file.name


@pytest.mark.skipif(bool(browser.WHY_NOT), reason=browser.WHY_NOT)
def test_search_and_session_work_on_a_plain_file_server(site):
    handler = functools.partial(Quiet, directory=site.folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home, asked = f"http://127.0.0.1:{server.server_port}/", []
    with browser.browser() as chromium:
        page = chromium.new_page(viewport={"width": 390, "height": 800}, color_scheme="dark")
        page.on("request", lambda request: asked.append(request.url))
        page.goto(home)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        picture = page.locator('a[href$="images/session.svg"] img')
        for shown in ("session.svg", "session-still.svg"):  # a click starts the session, and another stops it
            picture.click()
            assert picture.get_attribute("src") == f"{home}images/{shown}"
        for words, found in {"ssh-config": "container.ssh-config", "hyperparameter": "Sweeps"}.items():
            page.goto(f"{home}?q={words}")
            results = page.locator(".md-search-result__list", has_text=found)
            results.wait_for(state="attached", timeout=60_000)
    server.shutdown()
    assert asked and all(url.startswith((home, "data:", "blob:")) for url in asked)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass
