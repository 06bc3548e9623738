"""The storage pages: browse, preview, download, upload and remove, and no way out of a storage."""

import http.client
import json
import os
import socket
import time
from urllib.parse import quote, urlsplit

import pytest
import requests

from tests.attacks import ATTACKS, forbidden
from tests.portal.conftest import Web

ROOT = "/c/local/storage/home"
EVIL = "<img src=x onerror=alert(1)>"
SVG = b"<svg xmlns='http://www.w3.org/2000/svg' width='7' height='5'/>"


@pytest.fixture(scope="module")
def home(cluster):
    """The user's folder on the cluster's storage."""
    user = cluster.ok("cluster.credentials", "-o", "json").json()["user"]
    folder = cluster.home / "local" / "storage" / "home" / user
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def put(visitor, path, content, headers=None, query=""):
    headers = {"x-csrf-token": visitor.token, "accept": "application/json"} | (headers or {})
    return visitor.web.put(f"{visitor.root}{ROOT}/{path}{query}", data=content, headers=headers, timeout=60)


def raw(visitor, method, path, body=b"", **headers):
    """Send a path as it is: `requests` would clean it up first."""
    address = urlsplit(visitor.root)
    cookie = "; ".join(f"{one.name}={one.value}" for one in visitor.web.cookies)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
    connection.request(
        method,
        path,
        body,
        {"cookie": cookie, "host": visitor.web.headers["host"], "accept": "text/html", **headers},
    )
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content


def names(text):
    return [
        line.partition("</a>")[0].rpartition(">")[2] for line in text.split("\n") if 'scope="row"' in line
    ]


def test_storages_and_their_folders_are_listed(visitor, home):
    assert f'href="{ROOT}"' in visitor.get("/c/local/storage").text
    (home / "data").mkdir()
    (home / "data" / "a.txt").write_text("hello")
    page = visitor.get(f"{ROOT}/data")
    assert f'href="{ROOT}/data/a.txt"' in page.text and "5 B" in page.text
    assert visitor.get(f"{ROOT}/data/").status_code == 200
    assert visitor.get(f"{ROOT}/missing").status_code == 404
    assert visitor.get("/c/local/storage/nope/x").status_code == 404


def test_large_folders_come_in_pages_and_are_sorted(visitor, home):
    folder = home / "many"
    (folder / "zz-folder").mkdir(parents=True)
    for number in range(450):
        (folder / f"f{number:03}").write_bytes(b"x" * number)
    first = visitor.get(f"{ROOT}/many")
    assert names(first.text)[:2] == ["zz-folder", "f000"] and "200 of 451" in first.text
    assert names(visitor.get(f"{ROOT}/many?offset=400").text)[-1] == "f449"
    largest = visitor.get(f"{ROOT}/many?sort=size&dir=desc")
    assert names(largest.text)[1] == "f449" and 'aria-sort="descending"' in largest.text
    assert names(visitor.get(f"{ROOT}/many?q=F44").text) == [f"f44{n}" for n in range(10)]
    for odd in ("offset=-1", "offset=x", "offset=²", "sort=nope", "dir=nope", "offset=99999999999999"):
        assert visitor.get(f"{ROOT}/many?{odd}").status_code == 200


def test_files_are_previewed_and_downloaded(visitor, home):
    (home / "table.csv").write_text("name,value\na,1\n")
    (home / "notes & <b>.txt").write_text(f"text {EVIL}")
    (home / "page.html").write_text(EVIL)
    (home / "model.bin").write_bytes(bytes(range(256)))
    assert '<th scope="col">value</th>' in visitor.get(f"{ROOT}/table.csv").text
    text = visitor.get(f"{ROOT}/{quote('notes & <b>.txt')}").text
    assert EVIL not in text and "text &lt;img" in text and "<b>" not in text
    assert "sandbox src=" in visitor.get(f"{ROOT}/page.html").text
    frame = visitor.get(f"{ROOT}/page.html?view=raw")
    assert frame.text == EVIL and frame.headers["content-security-policy"].startswith(
        "sandbox; default-src 'none'"
    )
    assert "no preview" in visitor.get(f"{ROOT}/model.bin").text
    assert visitor.get(f"{ROOT}/model.bin?view=raw").status_code == 404
    saved = visitor.get(f"{ROOT}/model.bin?view=download")
    assert saved.content == bytes(range(256)) and saved.headers["content-security-policy"] == "sandbox"
    assert saved.headers["content-disposition"].startswith('attachment; filename="model.bin"')
    assert saved.headers["content-type"] == "application/octet-stream"


@pytest.mark.parametrize("attack", [name for name in ATTACKS if name not in ("nul", "surrogate")])
def test_hostile_names_are_shown_escaped_and_work(visitor, home, attack):
    name = ATTACKS[attack].replace("/", "_")
    (home / name).write_text("content")
    page = visitor.get(ROOT)
    assert not forbidden(page.text)
    assert visitor.get(f"{ROOT}/{quote(name)}?view=download").text == "content"
    assert not forbidden(visitor.get(f"{ROOT}/{quote(name)}").text)
    assert visitor.post("/c/local/storage.remove/home/", {"name": quote(name)}).status_code == 200
    assert not (home / name).exists()


def test_names_that_are_no_text_do_not_break_the_page(visitor, home):
    odd = os.fsencode(home) + b"/\xff\xfe.bin"
    with open(odd, "wb"):
        pass
    try:
        page = visitor.get(ROOT)
        assert page.status_code == 200 and "udcff" in page.text
    finally:
        os.unlink(odd)
    status, _ = raw(visitor, "GET", f"{ROOT}/%ff%fe.bin")
    assert status == 400


OUTSIDE = [
    f"{ROOT}/../../server.json",
    f"{ROOT}/%2e%2e/%2e%2e/credentials.json",
    f"{ROOT}/..%2f..%2fcredentials.json",
    f"{ROOT}/data%2f..%2f..%2f..%2fcredentials.json",
    f"{ROOT}/data/../../credentials.json",
    f"{ROOT}//etc/passwd",
    f"{ROOT}/%2fetc%2fpasswd",
    f"{ROOT}/./data",
    f"{ROOT}/%00",
    f"{ROOT}/data%00.txt",
    "/c/local/storage/..%2f..%2flocal/credentials.json",
    "/c/local/storage/home%2f..%2f../credentials.json",
    "/c/local/storage/..",
    "/c/local/storage/.",
    "/c/..%2f..%2fetc/storage/home",
    f"{ROOT}/out/credentials.json",
    f"{ROOT}/passwd",
    f"{ROOT}/chain/credentials.json",
]


@pytest.fixture(scope="module")
def links(home):
    """Links that lead out of the storage, as a job could make them."""
    (home / "out").symlink_to(home.parents[2])
    (home / "passwd").symlink_to("/etc/passwd")
    (home / "chain").symlink_to("out")
    (home / "loop").symlink_to("loop")
    yield
    for name in ("out", "passwd", "chain", "loop"):
        (home / name).unlink(missing_ok=True)


@pytest.mark.parametrize("view", ["", "?view=raw", "?view=download"])
def test_no_address_leads_out_of_a_storage(visitor, home, links, view):
    for path in OUTSIDE:
        status, content = raw(visitor, "GET", path + view)
        assert status in (400, 404), path
        assert b"root:" not in content and b'"password"' not in content, path


@pytest.mark.parametrize("path", [path for path in OUTSIDE if path.startswith(ROOT)])
def test_nothing_is_written_or_removed_outside_a_storage(cluster, visitor, home, links, path):
    before = {one: one.stat().st_mtime_ns for one in cluster.home.glob("local/*.json")}
    token = {"x-csrf-token": visitor.token}
    target = path if path != f"{ROOT}/passwd" else f"{ROOT}/passwd/x"
    status, _ = raw(visitor, "PUT", f"{target}?replace=yes", b"evil", **token)
    assert status in (400, 404)
    for action in ("folder", "remove"):
        body = b"name=credentials.json"
        kind = {"content-type": "application/x-www-form-urlencoded", **token}
        status, _ = raw(visitor, "POST", path.replace("/storage/", f"/storage.{action}/"), body, **kind)
        assert status in (400, 404)
    assert {one: one.stat().st_mtime_ns for one in cluster.home.glob("local/*.json")} == before


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "../x", "/etc", "a\0b", "%2e%2e"])
def test_new_folders_have_one_plain_name(visitor, home, name):
    answer = visitor.post("/c/local/storage.folder/home/", {"name": name})
    if name == "%2e%2e":  # nothing decodes it again
        assert (home / name).is_dir()
    else:
        assert answer.status_code == 400


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "../x", "%2e%2e", "%2e%2e%2fx", "a%00b"])
def test_only_names_in_the_folder_are_removed(visitor, home, name):
    assert visitor.post("/c/local/storage.remove/home/data", {"name": name}).status_code in (400, 403)
    assert (home / "data").is_dir()


def test_links_are_removed_and_not_what_they_lead_to(cluster, visitor, home, links):
    for name in ("out", "passwd", "loop"):
        assert visitor.post("/c/local/storage.remove/home/", {"name": name}).status_code == 200
        assert not (home / name).is_symlink()
    assert (cluster.home / "local" / "credentials.json").exists()


def test_files_and_whole_folders_are_removed_but_patterns_are_not_expanded(visitor, home):
    (home / "gone" / "deep").mkdir(parents=True)
    (home / "gone" / "deep" / "x").write_text("x")
    assert visitor.post("/c/local/storage.remove/home/", {"name": "go*"}).status_code == 404
    done = visitor.post("/c/local/storage.remove/home/", {"name": "gone"})
    assert done.url.endswith(ROOT) and not (home / "gone").exists()
    assert visitor.post("/c/local/storage.remove/home/").status_code == 400


def test_uploads_arrive_whole_with_their_folders(visitor, home):
    content = os.urandom(1_500_000)
    answer = put(visitor, "up/new/file.bin", content)
    assert answer.json() == {"size": len(content)} and (home / "up/new/file.bin").read_bytes() == content
    streamed = put(visitor, "up/chunked.bin", iter([b"a" * 1000, b"b" * 1000]))
    assert streamed.json() == {"size": 2000}
    assert put(visitor, "up/empty", b"").json() == {"size": 0} and (home / "up/empty").read_bytes() == b""
    assert sorted(os.listdir(home / "up")) == ["chunked.bin", "empty", "new"]


def test_existing_files_are_replaced_only_on_request(visitor, home):
    (home / "kept").write_text("old")
    refused = put(visitor, "kept", b"new")
    assert refused.status_code == 400 and "exists already" in refused.json()["error"]
    assert (home / "kept").read_text() == "old"
    paths = json.dumps(["kept", "data/a.txt", "data/b.txt", "nowhere/x", "new"])
    found = visitor.post(
        "/c/local/storage.check/home/", {"paths": paths}, headers={"accept": "application/json"}
    )
    assert found.json() == {"existing": ["kept", "data/a.txt"]}
    assert put(visitor, "kept", b"new", query="?replace=yes").status_code == 200
    assert (home / "kept").read_text() == "new"
    assert put(visitor, "data", b"x", query="?replace=yes").status_code == 400 and (home / "data").is_dir()


@pytest.mark.parametrize(
    "paths", ["", "{", "{}", "[1]", "[" * 100_000, json.dumps(["x"] * 10_001), '["../x"]']
)
def test_malformed_checks_are_refused(visitor, paths):
    answer = visitor.post(
        "/c/local/storage.check/home/", {"paths": paths}, headers={"accept": "application/json"}
    )
    assert answer.status_code == 400 and "error" in answer.json()


def test_uploads_need_the_token_and_a_signed_in_browser(visitor, home):
    for token in ("", "x"):
        assert put(visitor, "forged", b"x", {"x-csrf-token": token}).status_code == 403
    assert requests.put(f"{visitor.root}{ROOT}/forged", data=b"x", timeout=60).status_code in (401, 403, 405)
    other = put(visitor, "forged", b"x", {"origin": "http://evil.example"})
    assert other.status_code == 403 and not (home / "forged").exists()


def test_an_upload_that_breaks_off_leaves_nothing(visitor, home):
    (home / "broken").mkdir()
    (home / "broken" / "file").write_text("old")
    address = urlsplit(visitor.root)
    cookie = "; ".join(f"{one.name}={one.value}" for one in visitor.web.cookies)
    head = (
        f"PUT {ROOT}/broken/file?replace=yes HTTP/1.1\r\n"
        f"host: {visitor.web.headers['host']}\r\ncookie: {cookie}\r\n"
        f"x-csrf-token: {visitor.token}\r\ncontent-length: 1000000\r\n\r\n"
    )
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        connection.sendall(head.encode() + b"x" * 5000)
        until(lambda: len(os.listdir(home / "broken")) == 2)  # it is being written, under another name
        assert "pai-part" not in visitor.get(f"{ROOT}/broken").text
    until(lambda: os.listdir(home / "broken") == ["file"])
    assert (home / "broken" / "file").read_text() == "old"


def test_a_large_upload_is_not_held_in_memory(visitor, home):
    (pid,) = {json.loads(one.read_text())["pid"] for one in home.parents[3].glob("portal/*/server.json")}

    def memory():
        with open(f"/proc/{pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

    before = memory()
    assert put(visitor, "large.bin", (bytes(1 << 20) for _ in range(128))).json() == {"size": 128 << 20}
    assert visitor.get(f"{ROOT}/large.bin?view=download", stream=True).raw.read(100) == bytes(100)
    assert memory() - before < 32 << 10
    (home / "large.bin").unlink()


def test_other_users_see_nothing_that_the_owner_has_added(cluster, visitor, tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    cluster.ok("storage.add", "mine", "--type", "local", "--path", str(tmp_path))
    try:
        assert "mine" in names(visitor.get("/c/local/storage").text)
        assert "secret.txt" in visitor.get("/c/local/storage/mine").text
        guest = Web()
        login = json.loads((cluster.home / "local" / "credentials.json").read_text())
        form = {"cluster": "local", "user": login["user"], "password": login["password"]}
        assert guest.post(f"{visitor.root}/sign-in", data=form, timeout=60).status_code == 200
        listed = guest.get(f"{visitor.root}/c/local/storage", timeout=60)
        assert names(listed.text) == ["home"]
        assert guest.get(f"{visitor.root}/c/local/storage/mine", timeout=60).status_code == 404
    finally:
        cluster.ok("storage.forget", "mine")


def until(condition, seconds=60):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.02)


def drop(tab, *paths):
    """Drop files and folders of this machine on the page, as a file manager would."""
    session = tab.context.new_cdp_session(tab)
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, "x": 200, "y": 400, "data": data})


def test_files_and_folders_are_dropped_replaced_browsed_and_removed(tab, home, tmp_path):
    folder = tmp_path / "set"
    (folder / "inner" / "empty").mkdir(parents=True)
    for number in range(101):  # browsers list folders in parts of a hundred
        (folder / "inner" / f"{number}.txt").write_text(str(number))
    hostile = tmp_path / "<b>#?&%41.txt"
    hostile.write_text("hostile")
    (home / "drops").mkdir()
    tab.goto(f"{tab.root}{ROOT}/drops")
    drop(tab, folder, hostile)
    tab.get_by_role("link", name="set", exact=True).wait_for()
    tab.get_by_role("link", name=hostile.name).wait_for()
    assert (
        len(list((home / "drops/set/inner").iterdir())) == 102 and (home / "drops/set/inner/empty").is_dir()
    )

    hostile.write_text("changed")
    drop(tab, hostile)
    tab.get_by_role("button", name="Skip these").click()
    tab.wait_for_selector("[data-upload]", state="hidden")
    assert (home / "drops" / hostile.name).read_text() == "hostile"
    drop(tab, hostile)
    with tab.expect_response(f"{tab.root}{ROOT}/drops"):  # the list without the next file
        tab.get_by_role("button", name="Replace").click()
    tab.wait_for_selector("[data-upload]", state="hidden")
    assert (home / "drops" / hostile.name).read_text() == "changed"

    with tab.expect_file_chooser() as chooser:
        tab.get_by_role("button", name="Upload files").click()
    chooser.value.set_files(files=[{"name": "pixel.svg", "mimeType": "image/svg+xml", "buffer": SVG}])
    tab.get_by_role("link", name="pixel.svg").click()
    width = "async (picture) => { await picture.decode(); return picture.naturalWidth; }"
    assert tab.locator(".picture img").evaluate(width) == 7

    tab.go_back()
    tab.get_by_role("link", name=hostile.name).click()
    tab.get_by_text("changed").wait_for()
    with tab.expect_download() as download:
        tab.get_by_role("link", name="Download").click()
    assert download.value.path().read_text() == "changed"
    tab.on("dialog", lambda dialog: dialog.accept())
    tab.get_by_role("button", name="Remove").click()
    tab.get_by_role("link", name="pixel.svg").wait_for()
    assert not (home / "drops" / hostile.name).exists()
    tab.get_by_label("Select set").check()
    tab.get_by_role("button", name="Remove").click()
    tab.get_by_label("Select set").wait_for(state="detached")
    assert not (home / "drops/set").exists()


def test_failed_uploads_are_reported_and_foreign_pages_run_nothing(tab, home, tmp_path):
    (home / "refused").mkdir()
    (home / "refused" / "taken").mkdir()
    (tmp_path / "taken").write_text("x")
    (tmp_path / "page.html").write_text(
        "<h1>shown</h1><script>parent.document.title = document.title = 'run'</script>"
    )
    tab.goto(f"{tab.root}{ROOT}/refused")
    drop(tab, tmp_path / "taken", tmp_path / "page.html")
    with tab.expect_console_message(lambda line: "400 (Bad Request)" in line.text):
        tab.get_by_role("button", name="Replace").click()
    tab.get_by_text("taken is a folder").wait_for()
    tab.get_by_role("button", name="Close").click()
    with tab.expect_console_message(lambda line: "Blocked script" in line.text):
        tab.get_by_role("link", name="page.html").click()
    tab.frame_locator("iframe").get_by_role("heading", name="shown").wait_for()
    assert tab.title().startswith("page.html") and tab.frames[1].title() == ""
    expected = [line for line in tab.problems if "400 (Bad Request)" in line or "Blocked script" in line]
    assert len(expected) == len(tab.problems) == 2
    tab.problems.clear()
