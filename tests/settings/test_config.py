"""Settings are typed and validated, know their origin, and accept any spelling of their names."""

import os
from pathlib import Path

import pytest
from invoke import Config

from openpai_tasks.errors import ConfigError
from openpai_tasks.settings.config import VARIABLES, Settings, change_defaults, find
from openpai_tasks.settings.layers import read_defaults


@pytest.fixture(autouse=True)
def isolated(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def test_every_setting_has_a_default_and_a_description():
    settings = Settings.load(flags={"cluster_alias": "lab"})
    for name, variable in VARIABLES.items():
        if name == "cluster-alias":
            continue
        assert settings.value(variable) == variable.default
        assert settings.origins[name] == "built-in"
        assert variable.about


def test_the_defaults_are_the_documented_ones():
    settings = Settings()
    assert (settings.cpu, settings.gpu, settings.memory_mb, settings.python) == (2, 0, 4096, "python3")
    assert (settings.sources, settings.pip_installs, settings.clusters_in_local) == ((), (), False)


def test_jobs_of_the_embedded_cluster_request_little_by_default():
    known = [
        ({}, (1, 1024)),
        ({"cluster_alias": "local", "cpu": 3}, (3, 1024)),
        ({"memory_mb": 4096}, (1, 4096)),
        ({"cluster_alias": "lab"}, (2, 4096)),
        ({"local_engine": "docker"}, (1, 4096)),  # it would kill what uses more
        ({"cluster_alias": "lab", "local_engine": "process"}, (2, 4096)),
    ]
    for flags, requests in known:
        settings = Settings.load(flags=flags)
        assert (settings.cpu, settings.memory_mb) == requests, flags
        assert "cpu" not in settings.overruled


def test_the_documentation_lists_every_setting():
    text = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
    for name, variable in VARIABLES.items():
        shown = str(variable.default).lower() if variable.kind is bool else variable.default
        default = f"`{shown}`" if variable.default not in ("", ()) else "none"
        setting = "INVOKE_OPENPAI_" + name.upper().replace("-", "_").replace(".", "_")
        assert f"| `{name}` | {variable.about} | {default.replace('.0`', '`')} | `{setting}` |" in text, name


@pytest.mark.parametrize("spelling", ["memoryMB", "memory-mb", "memory_mb", "MEMORY_MB", "memorymb"])
def test_setting_name_may_be_spelled_in_any_style(spelling, monkeypatch):
    assert find(spelling).name == "memoryMB"
    assert Settings.load(Config(overrides={"openpai": {spelling: 1}})).memory_mb == 1
    monkeypatch.setenv(f"INVOKE_OPENPAI_{spelling.upper().replace('-', '_')}", "2")
    assert Settings.load().memory_mb == 2


def test_nested_and_dotted_setting_names_are_equivalent():
    assert Settings.load(Config(overrides={"openpai": {"local": {"enforce": True}}})).local_enforce == "true"
    assert Settings.load(Config(overrides={"openpai": {"local.enforce": "yes"}})).local_enforce == "true"


def test_values_are_converted_to_the_type_of_the_setting():
    known = [
        ("sources", ["a", "b"], ("a", "b")),
        ("sources", "a, b", ("a", "b")),
        ("sources", "", ()),
        ("clusters-in-local", "no", False),
        ("clusters-in-local", True, True),
        ("http-timeout", 5, 5.0),
        ("http-timeout", "0.5", 0.5),
        ("cpu", "8", 8),
        ("image", "", ""),
    ]
    assert [find(name).read(written, "here") for name, written, _ in known] == [read for *_, read in known]


def test_invalid_value_is_refused_with_its_origin_and_name():
    invalid = [
        ("cpu", 1.5),
        ("cpu", True),
        ("cpu", "many"),
        ("cpu", [1]),
        ("gpu", -1),
        ("http-timeout", "nan"),
        ("http-timeout", {}),
        ("image", 3.8),
        ("sources", [1]),
        ("sources", 1),
        ("clusters-in-local", "maybe"),
        ("clusters-in-local", 2),
        ("output", "xml"),
    ]
    for name, written in invalid:
        with pytest.raises(ConfigError, match=rf"^here: {name} must be "):
            find(name).read(written, "here")


def test_flag_overrides_every_other_origin_unless_it_is_not_given(monkeypatch):
    monkeypatch.setenv("INVOKE_OPENPAI_GPU", "1")
    given = Settings.load(None, {"gpu": 2, "image": None, "sources": []})
    assert (given.gpu, given.origins["gpu"]) == (2, "flag")
    assert given.origins["image"] == given.origins["sources"] == "built-in"


def test_empty_value_does_not_override_a_weaker_origin(monkeypatch):
    monkeypatch.setenv("INVOKE_OPENPAI_IMAGE", "")
    change_defaults(Path("home/defaults.yaml"), {"image": "kept"})
    assert Settings.load(Config(overrides={"openpai": {"image": None}})).image == "kept"


def test_home_folder_may_be_the_settings_folder_of_the_project(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / ".openpai"))
    change_defaults(tmp_path / ".openpai" / "defaults.yaml", {"image": "x"})
    assert Settings.load().image == "x"


def test_changing_defaults_keeps_the_other_entries_of_the_file(tmp_path):
    path = tmp_path / "defaults.yaml"
    path.write_text("image-list: [a]\nmemory_mb: 1\nlocal: {enforce: true, engine: x}\n")
    change_defaults(path, {"memoryMB": 2}, ["local.enforce"])
    assert read_defaults(path) == {"image-list": ["a"], "local.engine": "x", "memoryMB": 2}


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_settings_that_are_not_a_regular_file_are_refused(tmp_path, make):
    path = tmp_path / ".openpai" / "defaults.yaml"
    path.parent.mkdir()
    make(path)
    with pytest.raises(ConfigError, match=r"defaults\.yaml: it is not a regular file$"):
        Settings.load()


def test_version_that_yaml_reads_as_a_number_is_read_as_text(tmp_path):
    Path("home").mkdir()
    Path("home/defaults.yaml").write_text("local: {profile: 0.18}\n")
    assert Settings.load().local_profile == "0.18"
    Path("home/defaults.yaml").write_text("local: {profile: 0.2}\n")
    with pytest.raises(ConfigError, match=r"local.profile must be one of union, 0.14, 0.18, 1.8, got '0.2'"):
        Settings.load()


def test_own_value_of_a_setting_ignores_the_files_of_the_project(tmp_path, monkeypatch):
    (tmp_path / "invoke.yaml").write_text("openpai: {cluster-alias: one}\n")
    config = Config(project_location=str(tmp_path))
    config.load_project()
    config.load_collection({"openpai": {"image": "mine"}})
    loaded = Settings.load(config)
    assert (loaded.cluster_alias, loaded.own("cluster-alias")) == ("one", "local")
    assert (loaded.image, loaded.own("image")) == ("mine", "python:3")
    change_defaults(tmp_path / ".openpai" / "defaults.yaml", {"cluster-alias": "two"})
    change_defaults(tmp_path / "home" / "defaults.yaml", {"cluster-alias": "three"})
    loaded = Settings.load(config)
    assert (loaded.cluster_alias, loaded.own("cluster-alias")) == ("two", "three")
    assert Settings.load(config, {"cluster_alias": "four"}).own("cluster-alias") == "four"
    monkeypatch.setenv("INVOKE_OPENPAI_CLUSTER_ALIAS", "five")
    assert Settings.load(config).own("cluster-alias") == "five"
    assert Settings(cluster_alias="six").own("cluster-alias") == "six"
