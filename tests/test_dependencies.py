"""No accepted version of a dependency has a known vulnerability that affects us."""

import ast
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

SETUP = Path(__file__).parent.parent / "setup.py"

FIXED_IN = {
    "asyncssh": ("2.23.1", "path traversal in SCP"),
    "cryptography": ("46.0.7", "CVE-2026-39892"),  # CVE-2026-69247 needs PKCS#7, which nothing here decrypts
    "h11": ("0.16.0", "CVE-2025-43859"),
    "nbconvert": ("7.17.0", "CVE-2025-53000"),
    "paramiko": ("3.4.0", "CVE-2023-48795"),
    "PyJWT": ("2.13.0", "CVE-2026-32597, CVE-2026-48524"),
    "PyYAML": ("5.4", "CVE-2020-14343"),
    "requests": ("2.33.0", "CVE-2026-25645"),
    "starlette": ("1.3.1", "CVE-2026-48710, limits of forms"),
    "urllib3": ("2.7.0", "CVE-2026-44431, CVE-2026-44432"),
}
"""The first version that fixes the latest known vulnerability."""


def requirements() -> list[Requirement]:
    """Return every requirement in setup.py, whichever extra it belongs to."""
    texts = [node.value for node in ast.walk(ast.parse(SETUP.read_text())) if isinstance(node, ast.Constant)]
    found = [text for text in texts if isinstance(text, str) and (">=" in text or "==" in text)]
    return [Requirement(text) for text in found if text[:1].isalpha()]


@pytest.mark.parametrize("name", FIXED_IN)
def test_oldest_accepted_version_has_no_known_vulnerability(name):
    fixed, why = FIXED_IN[name]
    oldest = [
        Version(bound.version)
        for requirement in requirements()
        if requirement.name == name
        for bound in requirement.specifier
        if bound.operator in (">=", "==")
    ]
    assert oldest and min(oldest) >= Version(fixed), why
