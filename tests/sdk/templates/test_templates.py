"""Templates: found, described, filled in, written, and part of the package."""

import ast
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from openpai_tasks import protocol
from openpai_tasks.errors import ConfigError, PathError, ProtocolError
from openpai_tasks.sdk.jobs.options import read_options
from openpai_tasks.sdk.templates import catalog, rewriting

ROOT = Path(__file__).parents[3]
NAMES = sorted(path.stem for path in (ROOT / "job_templates").glob("*.yaml"))
KINDS = (
    "hello gpu-training pytorch-ddp tensorflow-ps horovod jupyter tensorboard model-serving data-preparation"
)
MINE = """\
# Mine.
protocolVersion: 2
name: mine
type: job
description: my own
parameters:
  image: &image "python:3"   # where it runs
  # how many
  # of them
  count: &count 2
  rate: 0.5
  flag: false
  script: |  # what to run
    echo one
    echo two
  rows: [1, 2]
  inline: {a: x, b: y}
prerequisites:
  - {name: image, type: dockerimage, uri: *image}
taskRoles:
  main:
    instances: *count
    dockerImage: image
    resourcePerInstance: {cpu: 1, memoryMB: 64, gpu: 0}
    commands:
      - <% $parameters.script %>  # the end
"""


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "work" / "job_templates"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(MINE)
    return folder.parent


def filled(project, name="mine", **parameters):
    return catalog.fill(catalog.find_template(name, project), parameters)


def test_built_in_templates_are_the_expected_ones():
    assert set(KINDS.split()) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
class TestBuiltInTemplates:
    def test_each_template_is_valid_and_has_a_description(self, name, tmp_path):
        template = catalog.find_template(name, tmp_path)
        document = protocol.validate(template.path.read_text())
        assert document.name == template.name and document.roles
        assert template.description and "\n" not in template.description
        assert template.parameters
        for parameter in template.parameters:
            assert parameter.about and parameter.default is not None, parameter

    def test_role_names_are_accepted_by_every_runtime(self, name, tmp_path):
        for role in protocol.validate(catalog.find_template(name, tmp_path).path.read_text()).roles:
            assert re.fullmatch("[a-z][a-z0-9]*", role.name)

    def test_every_parameter_is_used_and_every_placeholder_has_a_parameter(self, name, tmp_path):
        text = catalog.find_template(name, tmp_path).path.read_text()
        known = set(protocol.validate(text).parameters)
        holes = set(re.findall(r"<% \$parameters\.(\w+) %>", text))
        aliases = set(re.findall(r"[ \[]\*(\w+)", text))
        assert holes <= known <= holes | aliases

    def test_commands_are_valid_shell_however_a_server_joins_them(self, name, tmp_path):
        document = protocol.validate(catalog.find_template(name, tmp_path).path.read_text())
        for role, script in document.entrypoints().items():
            commands = [part.strip() for part in document.data["taskRoles"][role]["commands"]]
            for text in (script, " && ".join(commands).replace("<% ", "").replace(" %>", "")):
                for shell in ("bash", "sh"):
                    checked = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True)
                    assert (checked.returncode, checked.stderr) == (0, ""), (role, shell)

    def test_embedded_example_is_valid_python(self, name, tmp_path):
        text = "\n".join(
            protocol.validate(catalog.find_template(name, tmp_path).path.read_text()).entrypoints().values()
        )
        examples = re.findall(r"<<'END'\n(.*?)\nEND\n", text, re.S)
        assert examples or "pai_example.py" not in text
        for example in examples:
            ast.parse(example)

    def test_template_contains_no_secrets(self, name, tmp_path):
        assert "secrets" not in yaml.safe_load(catalog.find_template(name, tmp_path).path.read_text())


def test_parameters_have_their_defaults_and_the_comment_beside_or_above_them(project):
    found = {item.name: item for item in catalog.find_template("mine", project).parameters}
    assert found["image"] == catalog.Parameter("image", "python:3", "where it runs")
    assert found["count"] == catalog.Parameter("count", 2, "how many of them")
    assert found["script"].about == "what to run"
    assert found["rate"].about == ""


def test_template_of_the_project_is_found_first_even_from_a_subfolder(project):
    (project / "job_templates" / "hello.yaml").write_text(MINE)
    below = project / "deep" / "er"
    below.mkdir(parents=True)
    assert catalog.find_template("hello", below).description == "my own"
    assert {item.name for item in catalog.list_templates(below)} == {"mine", *NAMES}
    assert catalog.find_template("hello", project.parent).description != "my own"


def test_a_template_can_be_named_by_its_file(project):
    assert catalog.find_template("job_templates/mine.yaml", project).name == "mine"
    assert catalog.find_template("mine.yaml", project).name == "mine"
    with pytest.raises(PathError, match=r"no template file './none.yaml'"):
        catalog.find_template("./none.yaml", project)


def test_error_for_an_unknown_template_suggests_a_similar_name(project):
    with pytest.raises(
        ConfigError, match=r"no template named 'helo' \(known: .*mine.*\), did you mean 'hello'"
    ):
        catalog.find_template("helo", project)


def test_a_broken_template_is_listed_and_cannot_be_used(project):
    (project / "job_templates" / "bad.yaml").write_text("name: [")
    (project / "job_templates" / "binary.yml").write_bytes(b"\xff\xfe")
    broken = {item.name for item in catalog.list_templates(project) if item.problem}
    assert broken == {"bad", "binary"}
    for name in broken:
        with pytest.raises(ProtocolError, match=name):
            catalog.find_template(name, project)


def test_filling_changes_values_and_nothing_else(project):
    text = filled(project, count="3", rate="1e-3", flag="true", image="a:b")
    expected = MINE.replace("&count 2", "&count 3").replace("rate: 0.5", "rate: 0.001")
    assert text == expected.replace("flag: false", "flag: true").replace('"python:3"', "a:b")
    document = protocol.validate(text)
    assert document.roles[0].instances == 3 and document.roles[0].image == "a:b"


def test_filling_without_parameters_gives_the_template(project):
    assert filled(project) == MINE


@pytest.mark.parametrize(
    "value", ["", "yes", "12", "a: b # c", "it's", 'a "b"', "two\nlines\n", " x\n\ny", "é\t"]
)
@pytest.mark.parametrize("name", ["image", "script"])
def test_any_text_parameter_is_kept_exactly(project, name, value):
    text = filled(project, **{name: value})
    assert protocol.validate(text).parameters[name] == value
    assert "# where it runs" in text and "# what to run" in text and "# the end" in text


def test_lists_and_mappings_are_given_as_json(project):
    parameters = protocol.validate(filled(project, rows="[3]", inline='{"c": "d, e"}')).parameters
    assert parameters["rows"] == [3] and parameters["inline"] == {"c": "d, e"}


@pytest.mark.parametrize(
    "name, value, kind",
    [
        ("count", "many", "a whole number"),
        ("count", "2.5", "a whole number"),
        ("count", True, "a whole number"),
        ("rate", "fast", "a number"),
        ("flag", "maybe", "true or false"),
        ("rows", "1,2", "a list"),
        ("inline", "[1]", "a mapping"),
    ],
)
def test_value_of_another_type_is_refused(project, name, value, kind):
    with pytest.raises(ConfigError, match=f"template 'mine': parameter '{name}' must be {kind}, got"):
        filled(project, **{name: value})


def test_an_unknown_parameter_is_refused_with_a_suggestion(project):
    with pytest.raises(
        ConfigError, match=r"has no parameter 'cuont' \(known: image, .*, did you mean 'count'\?"
    ):
        filled(project, cuont=1)


def test_a_value_that_makes_the_job_invalid_is_refused(project):
    with pytest.raises(ProtocolError, match=r"taskRoles.main.instances: must be >= 1, got 0"):
        filled(project, count=0)


def test_parameter_that_is_a_yaml_alias_can_get_its_own_value(project):
    path = project / "job_templates" / "mine.yaml"
    path.write_text(MINE.replace("rate: 0.5", "rate: *count"))
    parameters = protocol.validate(filled(project, rate="7")).parameters
    assert (parameters["count"], parameters["rate"]) == (2, 7)


def test_values_inside_braces_can_be_replaced():
    assert rewriting.replace_values("a: {b: x, c: y}\n", {("a", "b"): "p, q"}) == 'a: {b: "p, q", c: y}\n'


@pytest.mark.parametrize("word", ["lr", "=1", ""])
def test_a_parameter_without_name_or_value_is_refused(word):
    with pytest.raises(ConfigError, match="name=value"):
        read_options({"parameter": [word]})


def test_given_parameters_are_split_at_the_first_equals_sign():
    assert read_options({"parameter": ["a=b=c", "d="]}).parameter == {"a": "b=c", "d": ""}


def test_job_file_is_written_with_its_name_and_not_overwritten_without_force(project, monkeypatch):
    monkeypatch.chdir(project)
    template = catalog.find_template("mine", project)
    written = catalog.write_job_file(template, Path("jobs/my job.yaml"), {"count": 4}, force=False)
    assert written == catalog.WrittenJobFile("jobs/my job.yaml", "mine", "my-job")
    path = project / "jobs" / "my job.yaml"
    assert protocol.validate(path.read_text()).roles[0].instances == 4
    with pytest.raises(PathError, match=r"'jobs/my job.yaml' exists; .*--force"):
        catalog.write_job_file(template, Path("jobs/my job.yaml"), {}, force=False)
    assert "count: &count 4" in path.read_text()
    catalog.write_job_file(template, Path("jobs/my job.yaml"), {}, force=True)
    assert path.read_text() == MINE.replace("name: mine", "name: my-job")
    assert catalog.write_job_file(template, Path("jobs"), {}, force=False).file == "jobs/mine.yaml"
    assert sorted(item.name for item in path.parent.iterdir()) == ["mine.yaml", "my job.yaml"]
    plain = project / "plain"
    plain.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_job_file_that_cannot_be_written_is_an_error(project):
    (project / "file").touch()
    with pytest.raises(PathError, match="cannot write"):
        catalog.write_job_file(
            catalog.find_template("mine", project), project / "file" / "x.yaml", {}, force=False
        )


def test_built_package_contains_the_templates(tmp_path):
    command = [sys.executable, "setup.py", "-q", "build", "--build-base", str(tmp_path / "build")]
    egg = ["egg_info", "--egg-base", str(tmp_path)]
    subprocess.run([*command, *egg], cwd=ROOT, check=True, capture_output=True)
    [package] = (tmp_path / "build").glob("lib*/openpai_tasks")
    assert sorted(path.stem for path in (package / "job_templates").iterdir()) == NAMES
    code = (
        "import pathlib; from openpai_tasks.sdk import templates;"
        "print(*(item.path for item in templates.list_templates(pathlib.Path('/'))))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(package.parent)!r}); {code}"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert [Path(path).parent for path in shown] == [package / "job_templates"] * len(NAMES)
