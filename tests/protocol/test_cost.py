from __future__ import annotations

import subprocess
import sys


def test_importing_the_protocol_loads_no_third_party_package_except_yaml():
    code = (
        "import sys; before = set(sys.modules); from openpai_tasks.protocol import *;"
        "new = {name.split('.')[0] for name in set(sys.modules) - before};"
        "print(*sorted(new - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = [name for name in done.stdout.split() if "cython" not in name]  # libyaml's own
    assert set(found) <= {"_yaml", "lazy_loader", "openpai_tasks", "yaml"}
