"""Sign in to the portal, which is started if necessary, and submit, stop or list jobs there."""

import json
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.portal.visitor import Visitor

PAI = str(Path(sys.executable).parent / "pai")
ROW = re.compile(r'<th scope="row"[^>]*><a [^>]*>([A-Za-z0-9._-]+)</a>')  # not the signs beside sweeps


def pai(*words: str) -> str:
    done = subprocess.run([PAI, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"{words}: {done.stderr}")
    return done.stdout.strip()


def names() -> list[str]:
    """Return the jobs that the portal lists on lines of their own."""
    listed = json.loads(pai("job.list", "--limit", "100000", "-o", "json"))
    return [job["name"] for job in listed if "-x-" not in job["name"]]


def main(alias: str, verb: str, *words: str) -> None:
    visitor = Visitor(pai("cluster.portal", "--no-browser"), alias)
    if verb in ("form", "file"):
        form = {"draft": uuid.uuid4().hex}
        if verb == "form":
            form |= {"job_name": words[0], "command": words[1], "cpu": "1", "memoryMB": words[2]}
        else:
            form |= {"text": pai(*words[1:], "--preview", "-o", "yaml")}
        page = visitor.post(f"/c/{alias}/submit{'' if verb == 'form' else '/file'}", form)
        if not page.url.endswith(f"~{words[0]}"):
            problem = re.search(r'class="[^"]*(?:problem|error)[^"]*"[^>]*>([^<]*)', page.text)
            sys.exit(f"HTTP {page.status_code} {page.url}: {problem and problem[1]}")
    elif verb == "stop":
        page = visitor.post(f"/c/{alias}/jobs/{words[0]}/stop")
        if not page.ok:
            sys.exit(f"HTTP {page.status_code} {page.url}")
    else:
        before = names()
        page = visitor.get(f"/c/{alias}/jobs?limit=500")
        if not page.ok:
            sys.exit(f"HTTP {page.status_code} {page.url}")
        print(json.dumps({"before": before, "page": ROW.findall(page.text)}))


signal.signal(signal.SIGINT, signal.SIG_DFL)
try:
    main(*sys.argv[1:])
except (OSError, AssertionError) as err:  # the portal was killed, or its cluster did not answer
    sys.exit(str(err))
