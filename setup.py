"""What openpai-tasks is made of and needs; tool settings are in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (HERE / "openpai_tasks/__init__.py").read_text())[1]

setup(
    name="openpai-tasks",
    version=VERSION,
    description="Run deep-learning jobs on OpenPAI clusters from your own project folder",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    packages=find_packages(include=["openpai_tasks", "openpai_tasks.*"]),
    package_data={"openpai_tasks": ["py.typed"]},
    install_requires=[
        "invoke>=2.2.1,<4",
        "fabric>=3.2.3",
        "requests>=2.31",
        "PyYAML>=6.0.1",
        "pathspec>=0.12",
        "starlette>=0.37",
        "uvicorn>=0.29",
    ],
    extras_require={
        "keyring": ["keyring>=24"],
        "notebook": ["nbconvert>=7.16", "ipykernel>=6.29"],
        "test": ["pytest>=8", "pytest-timeout>=2.3", "keyring>=24"],
    },
    entry_points={"console_scripts": ["pai = openpai_tasks.program:main"]},
)
