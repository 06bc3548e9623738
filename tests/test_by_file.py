"""Workers of pytest-xdist collect a file when they begin to run it; nothing is lost by that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree

from tests.forkserver import ROOT

FILES = {
    "conftest.py": """
        import pytest

        pytest_plugins = ["tests.by_file"]

        @pytest.fixture(scope="session")
        def shared(request):
            with open(request.config.rootpath / "log", "a") as log:
                yield log
                log.write("end")
        """,
    "folder/test_a.py": "def test_a():\n    pass",
    "folder/test_skipped.py": "import pytest\npytest.skip('not here', allow_module_level=True)",
    "test_broken.py": "import no_such_module",
    "test_failing.py": "def test_failing():\n    assert 1 + 1 == 3",
    "test_first.py": """
        import pytest

        @pytest.mark.parametrize("number", [1, 2])
        def test_first(shared, number):
            shared.write(f"{number} ")
        """,
    "test_second.py": "def test_second(shared):\n    shared.write('3 ')",
    "test_skipped.py": "import pytest\npytest.skip('not here', allow_module_level=True)",
    "test_slow.py": """
        import time
        import pytest

        @pytest.mark.timeout(0.2, func_only=True)
        def test_slow():
            time.sleep(60)
        """,
}


def test_each_test_is_run_and_each_failure_reported(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(dedent(text))
    flags = ("-p", "no:schemathesis", "-n", "1", "--dist", "loadfile", "--junitxml", "results.xml")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *flags, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done
    suite = ElementTree.parse(tmp_path / "results.xml").getroot()[0]
    results = {f"{case.get('classname')}.{case.get('name')}": [child.tag for child in case] for case in suite}
    assert results == {
        "folder.test_a.test_a": [],
        ".folder.test_skipped": ["skipped"],
        ".test_broken": ["error"],
        "test_failing.test_failing": ["failure"],
        "test_first.test_first[1]": [],
        "test_first.test_first[2]": [],
        "test_second.test_second": [],
        ".test_skipped": ["skipped"],
        "test_slow.test_slow": ["failure"],
    }
    assert "Failed: Timeout" in done.stdout
    assert (tmp_path / "log").read_text() == "1 2 3 end"
