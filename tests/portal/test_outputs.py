"""The files that a job wrote: shown, downloaded, and never trusted."""

import json

import pytest
import requests

from tests.portal.conftest import Web, open_link

HOSTILE = "<img src=x onerror=alert(1)>.txt"
NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "metadata": {}, "source": "# Heading\n<script>parent.hacked = 1</script>"},
        {
            "cell_type": "code",
            "metadata": {},
            "execution_count": 1,
            "source": "1 + 1",
            "outputs": [
                {
                    "output_type": "display_data",
                    "metadata": {},
                    "data": {"text/html": "<b id=out>bold</b><img src=x onerror='parent.hacked = 2'>"},
                }
            ],
        },
    ],
    "metadata": {},
    "nbformat": 4,
    "nbformat_minor": 5,
}
WRITER = f"""
import json, os
out = os.environ["PAI_OUTPUT_DIR"]
def write(name, text):
    path = os.path.join(out, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
write("notes.txt", "<script>alert(1)</script>\\n")
write("deep/er/table.csv", 'name,value\\n"<b>x</b>",1\\nshort\\n')
write("values.json", '{{"a": [1, 2]}}')
write("picture.svg", "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>")
write("page.html", "<h1>Page</h1><script>parent.hacked = 3; fetch('/c/local/jobs')</script>")
write(".pai/metrics/main-0-0.jsonl", "")
write("model.bin", bytes(range(256)))
write("long.txt", "x" * (1 << 20))
write("result.ipynb", {json.dumps(json.dumps(NOTEBOOK))})
write("broken.ipynb", "[]")
write({HOSTILE!r}, "text")
write("a b#c?d%2e.txt", "odd name")
with open(os.path.join(out.encode(), b"bytes-\\xff.txt"), "w") as file:
    file.write("no text")
os.symlink("/etc/passwd", os.path.join(out, "passwd.txt"))
"""
FILES = "/c/local/jobs/writes"


@pytest.fixture(scope="module")
def written(cluster):
    (cluster.project / "write.py").write_text(WRITER)
    cluster.ok("job.sub", "python3 write.py", "--sources", "write.py", "-j", "writes")
    cluster.ok("job.wait", "writes")


def test_files_are_listed_with_their_sizes(visitor, written):
    page = visitor.get(f"{FILES}/outputs").text
    assert "&lt;img src=x onerror=alert(1)&gt;.txt" in page and "<img src=x" not in page
    assert 'href="/c/local/jobs/writes/outputs/deep/er/table.csv"' in page
    assert 'href="/c/local/jobs/writes/outputs/a%20b%23c%3Fd%252e.txt"' in page and "1.0 MiB" in page
    assert "bytes-\\udcff.txt" in page and "its name is not UTF-8" in page
    assert "Left out, not the job's own files: passwd.txt" in page
    assert ".pai" not in page.partition("<main")[2]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("notes.txt", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("values.json", "{&#34;a&#34;: [1, 2]}"),
        ("deep/er/table.csv", "<td>&lt;b&gt;x&lt;/b&gt;</td><td>1</td>"),
        ("long.txt", "Only the beginning is shown"),
        ("model.bin", "There is no preview"),
        ("a%20b%23c%3Fd%252e.txt", "odd name"),
        ("picture.svg", '<img src="/c/local/jobs/writes/outputs/picture.svg?view=raw"'),
        (
            "result.ipynb",
            '<iframe class="frame" sandbox src="/c/local/jobs/writes/outputs/result.ipynb?view=raw"',
        ),
    ],
)
def test_each_kind_of_file_has_a_preview(visitor, written, name, shown):
    page = visitor.get(f"{FILES}/outputs/{name}")
    assert page.status_code == 200 and shown in page.text
    assert "<title>writes: " in page.text


def test_downloads_are_the_bytes_of_the_file(visitor, written):
    answer = visitor.get(f"{FILES}/outputs/model.bin?view=download")
    assert answer.content == bytes(range(256))
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith('attachment; filename="model.bin"')


def test_contents_of_jobs_have_no_powers(visitor, written):
    for name in ("picture.svg", "page.html", "result.ipynb"):
        policy = visitor.get(f"{FILES}/outputs/{name}?view=raw").headers["content-security-policy"]
        assert policy.startswith("sandbox; default-src 'none'") and "script-src" not in policy
    for name in ("notes.txt", "broken.ipynb"):
        assert visitor.get(f"{FILES}/outputs/{name}?view=raw").status_code == 404


@pytest.mark.parametrize(
    "name",
    ["../source/write.py", "%2e%2e/source/write.py", "..%2fsource%2fwrite.py", "passwd.txt", "/etc/passwd"],
)
def test_no_other_file_can_be_read(visitor, written, name):
    for view in ("", "?view=raw", "?view=download"):
        session = visitor.web
        request = session.prepare_request(requests.Request("GET", visitor.root))
        request.url = f"{visitor.root}{FILES}/outputs/{name}{view}"  # as it is, without being tidied up
        answer = session.send(request, timeout=60)
        assert (
            answer.status_code in (400, 404)
            and "root:" not in answer.text
            and "PAI_OUTPUT" not in answer.text
        )


def test_notebooks_and_pages_run_nothing_in_the_browser(chromium, link, written):
    page = chromium.new_context().new_page()
    try:
        root = open_link(page, link())
        for name, selector in (("result.ipynb", "#out"), ("page.html", "h1:text('Page')")):
            page.goto(f"{root}{FILES}/outputs/{name}")
            page.frame_locator("iframe").locator(selector).wait_for()
            assert page.evaluate("() => window.hacked === undefined")
        page.goto(f"{root}{FILES}/outputs/result.ipynb?view=raw")  # also not when it is opened by itself
        assert page.locator("h1:has-text('Heading')").count() == 1
        assert page.evaluate("() => origin") == "null"
    finally:
        page.context.close()


def test_users_with_a_password_see_no_files_of_others(cluster, visitor, written):
    """The portal reads storages with the rights of its owner, which other users do not have."""
    login = cluster.ok("cluster.credentials", "-o", "json").json()
    bob = {"username": "bob", "password": "bob-secret"}
    head = {"Authorization": f"Bearer {login['token']}"}
    assert (
        requests.post(f"{login['uri']}/api/v2/users", json=bob, headers=head, timeout=60).status_code == 201
    )
    web = Web()
    form = {"cluster": "local", "user": "bob", "password": "bob-secret"}
    assert web.post(f"{visitor.root}/sign-in", data=form, timeout=60).status_code == 200
    job = f"{visitor.root}/c/local/jobs/{login['user']}~writes"
    for tab in ("outputs", "metrics", "records"):
        page = web.get(f"{job}/{tab}", timeout=60)
        assert page.status_code == 200 and "are not shown here" in page.text and "notes" not in page.text
    for path in ("outputs/notes.txt", "outputs/notes.txt?view=download", "outputs/page.html?view=raw"):
        assert web.get(f"{job}/{path}", timeout=60).status_code == 403
    assert "Recorded in this project" not in web.get(f"{job}/provenance", timeout=60).text
    page = web.get(f"{job}/resubmit/document", timeout=60).text
    token = page.partition('name="csrf" content="')[2].partition('"')[0]
    sent = web.post(f"{job}/resubmit/document", data={"csrf": token, "document": "name: x"}, timeout=60)
    assert sent.status_code == 400 and "are not shown here" in sent.text
    ssh = web.get(f"{job}/ssh-command", timeout=60)
    assert ssh.status_code == 403


def test_a_job_without_outputs_says_so(cluster, visitor):
    cluster.ok("job.sub", "true", "-j", "silent")
    assert "A program writes them to" in visitor.get("/c/local/jobs/silent/outputs").text
