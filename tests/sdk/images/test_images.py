"""Command lines of container engines, their output, and Dockerfiles."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from openpai_tasks.errors import ConfigError, PathError
from openpai_tasks.sdk.images import dockerfiles, programs
from openpai_tasks.settings import engines


def having(*names: str):  # type: ignore[no-untyped-def]
    return lambda name: f"/bin/{name}" if name in names else None


def test_first_available_engine_is_used() -> None:
    assert programs.find_engine("auto", having("docker", "podman"), lambda name: True) == "docker"
    assert programs.find_engine("auto", having("podman")) == "podman"
    assert programs.find_engine("podman", having("docker", "podman")) == "podman"


@pytest.mark.parametrize(
    ("answers", "found"), [({"podman"}, "podman"), ({"docker", "podman"}, "docker"), (set(), "docker")]
)
def test_the_engine_that_answers_is_used(answers: set[str], found: str) -> None:
    both = having("docker", "podman")
    assert programs.find_engine("auto", both, answers.__contains__) == found  # one that fails says why


@pytest.mark.parametrize(
    ("docker", "podman", "engine"), [(1, 0, "podman"), (0, 0, "docker"), (1, 1, "process")]
)
def test_the_embedded_cluster_takes_the_engine_that_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, docker: int, podman: int, engine: str
) -> None:
    for name, code in (("docker", docker), ("podman", podman)):
        (tmp_path / name).write_text(f'#!/bin/sh\n[ "$*" = "ps --quiet" ] && exit {code}\nexit 9\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert engines.choose_engine("auto") == engine
    assert engines.choose_engine("podman") == "podman"


@pytest.mark.parametrize(
    ("wanted", "message"), [("auto", "docker or podman"), ("podman", "podman not found")]
)
def test_a_missing_engine_is_reported(wanted: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        programs.find_engine(wanted, having())


@pytest.mark.parametrize(
    "name",
    [
        *("python", "python:3.12-slim", "lab/train:1", "host:5000/a/b-c_d.e:v1", "[::1]:5000/a"),
        *("ghcr.io/a/b", "a@sha256:" + "0" * 64, "a__b/c--d"),
    ],
)
def test_valid_image_names_are_accepted(name: str) -> None:
    assert programs.check_reference(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "-rm", "--rm", "Upper", "a b", "a;b", "a:", "a:-x", "a/$(x)", "a\nb", "a//b", "/a", "a@sha256:1"],
)
def test_invalid_image_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="needs a name such as"):
        programs.check_reference(name)


def test_a_build_names_its_file_and_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-odd").mkdir()
    (tmp_path / "-odd" / "Dockerfile").touch()
    argv = programs.build_command("podman", "-odd", "lab/a:1", arguments=["A=x y"], fresh=True)
    assert argv == [
        *("podman", "build", "--tag", "lab/a:1", "--file", "./-odd/Dockerfile", "--build-arg", "A=x y"),
        *("--no-cache", "--pull", "./-odd"),
    ]


def test_a_build_needs_a_folder_a_file_and_a_name(tmp_path: Path) -> None:
    with pytest.raises(PathError, match="no such folder"):
        programs.build_command("docker", str(tmp_path / "none"), "a")
    with pytest.raises(PathError, match=r"no Dockerfile in .*container\.dockerfile"):
        programs.build_command("docker", str(tmp_path), "a")
    (tmp_path / "Containerfile").touch()
    with pytest.raises(ConfigError, match="--tag needs a name"):
        programs.build_command("docker", str(tmp_path), "")
    with pytest.raises(ConfigError, match="NAME=VALUE"):
        programs.build_command("docker", str(tmp_path), "a", arguments=["--rm"])


def test_failed_push_suggests_the_login_command() -> None:
    programs.check_push("docker", "a", 0)
    with pytest.raises(ConfigError, match=r"run `docker login host:5000`"):
        programs.check_push("docker", "host:5000/a", 1)
    with pytest.raises(ConfigError, match=r"run `podman login`"):
        programs.check_push("podman", "lab/a", 125)


def test_list_of_images_is_parsed() -> None:
    text = "lab/a\t1\tabc\t2026-11-15 05:28:45 +0000 UTC\t5.2MB\nWARNING: odd\n"
    assert programs.parse_images(text) == [
        programs.Image("lab/a", "1", "abc", "2026-11-15 05:28:45", "5.2MB")
    ]


CHECK_OUTPUT = """\
noise
pai-check sh sh: 0: Illegal option --
pai-check bash GNU bash, version 5.2.15(1)-release (aarch64) and more
pai-check sshd unknown option -- V OpenSSH_8.4p1 Debian-5+deb11u3, OpenSSL 1.1.1w
pai-check tar tar (GNU tar) 1.34
pai-check sha256sum sha256sum (GNU coreutils) 9.1
"""


def test_a_check_lists_programs_and_their_purpose() -> None:
    found = {one.program: one for one in programs.parse_findings("docker", "a", 0, CHECK_OUTPUT)}
    assert list(found) == ["sh", "bash", "curl", "sshd", "python3", "sha256sum", "tar"]
    there = {name: one.version for name, one in found.items() if one.there}
    assert there == {"sh": "", "bash": "5.2.15", "sshd": "8.4p1", "sha256sum": "9.1", "tar": "1.34"}
    with pytest.raises(
        ConfigError, match=r"a lacks curl; add sshd and curl with `pai container.dockerfile --base a --ssh`"
    ):
        programs.check_findings("a", found.values())
    programs.check_findings("a", programs.parse_findings("docker", "a", 0, CHECK_OUTPUT, with_ssh=False))


def test_image_without_a_shell_lacks_every_program() -> None:
    found = programs.parse_findings("docker", "a", programs.NO_SUCH_PROGRAM, "")
    assert not any(one.there for one in found)
    with pytest.raises(ConfigError, match="a lacks sh, bash, curl, sshd, sha256sum, tar"):
        programs.check_findings("a", found)
    with pytest.raises(
        ConfigError, match=r"docker cannot run the image a \(it exited with 125\); .*`docker info`"
    ):
        programs.parse_findings("docker", "a", 125, "")


def test_a_dockerfile_has_its_packages_quoted() -> None:
    text = dockerfiles.dockerfile(
        "python:3.12", ["torch>=2,<3", "a[b]; python_version < '4'"], ["git", "curl"], ssh=True
    )
    assert text.splitlines()[1] == "FROM python:3.12"
    runs = [part.replace("\\\n", " ") for part in text.split("\nRUN ")[1:]]
    assert shlex.split(runs[0].partition("&&")[2])[5:] == ["curl", "openssh-server", "git", "&&", *RM]
    assert runs[1] == "mkdir -p /run/sshd\n"
    assert shlex.split(runs[2]) == [
        *("python3", "-m", "pip", "install", "--no-cache-dir", "torch>=2,<3", "a[b]; python_version < '4'"),
    ]
    assert dockerfiles.dockerfile("python:3.12").count("\n") == 2


RM = ["rm", "-rf", "/var/lib/apt/lists/*"]


@pytest.mark.parametrize(
    "options",
    [
        *(
            {"pip": [name]}
            for name in ("", "-r x", "a;b && c`d`", "a\nRUN b", "a $(b)", "--index-url=x", "a<<E")
        ),
        *({"apt": [name]} for name in ("", "A", "-y", "a b", "a;b", "a\\", "$(a)", "a\nb", "a'")),
        {"base": "a\nRUN b"},
        {"base": "$BASE"},
    ],
)
def test_invalid_package_names_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="needs"):
        dockerfiles.dockerfile(**{"base": "python", **options})  # type: ignore[arg-type]


def test_existing_dockerfile_is_replaced_only_on_request(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    dockerfiles.write_dockerfile(path, "one", replace=False)
    with pytest.raises(PathError, match="exists; overwrite it with --yes"):
        dockerfiles.write_dockerfile(path, "two", replace=False)
    assert path.read_text() == "one"
    dockerfiles.write_dockerfile(path, "two", replace=True)
    assert path.read_text() == "two"
    with pytest.raises(PathError, match="is a folder"):
        dockerfiles.write_dockerfile(tmp_path, "two", replace=True)
    with pytest.raises(PathError, match="cannot write"):
        dockerfiles.write_dockerfile(tmp_path / "none" / "file", "two", replace=False)
    assert [one.name for one in tmp_path.iterdir()] == ["Dockerfile"]
