"""-u path=value: where it goes, what it becomes, and when it is refused."""

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.jobs.updates import apply_updates


def document():
    return {
        "name": "n",
        "prerequisites": [{"name": "image", "uri": "python:3"}],
        "taskRoles": {"main": {"instances": 1}},
        "defaults": None,
        "extras": {"com.microsoft.pai.runtimeplugin": [{"plugin": "ssh"}]},
    }


@pytest.mark.parametrize("path", ["taskRoles.main.instances", "taskRoles:main:instances"])
def test_dots_and_colons_are_equivalent_separators(path):
    assert apply_updates(document(), [f"{path}=4"])["taskRoles"] == {"main": {"instances": 4}}


@pytest.mark.parametrize(
    "path", ["prerequisites[0].uri", "prerequisites.0.uri", "prerequisites:0:uri", "prerequisites.-1.uri"]
)
def test_number_in_a_path_selects_a_list_item(path):
    changed = apply_updates(document(), [f"{path}=python:3.12"])
    assert changed["prerequisites"] == [{"name": "image", "uri": "python:3.12"}]


def test_index_after_the_last_item_appends_an_item():
    changed = apply_updates(document(), ['prerequisites[1]={"name": "data"}', "prerequisites.1.type=data"])
    assert changed["prerequisites"][1:] == [{"name": "data", "type": "data"}]


def test_names_between_colons_may_contain_dots():
    changed = apply_updates(document(), ["extras:com.microsoft.pai.runtimeplugin:0:parameters:jobssh=true"])
    [plugin] = changed["extras"]["com.microsoft.pai.runtimeplugin"]
    assert plugin == {"plugin": "ssh", "parameters": {"jobssh": True}}


def test_missing_and_empty_levels_are_created():
    changed = apply_updates(document(), ["defaults.virtualCluster=test", "a.b.0.c=1"])
    assert changed["defaults"] == {"virtualCluster": "test"}
    assert changed["a"] == {"b": [{"c": 1}]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-2.5e3", -2500.0),
        ("true", True),
        ("null", None),
        ('["a", 1]', ["a", 1]),
        ('"5"', "5"),
        ("", ""),
        ("lab", "lab"),
        ("007", "007"),
        ("NaN", "NaN"),
        ("yes", "yes"),
        ("a=b,c", "a=b,c"),
        ("[{name: x, on: yes}]", [{"name": "x", "on": "yes"}]),
        ("{a: 1, b: }", {"a": 1, "b": None}),
        ('"[ -f a ] && cat a"', "[ -f a ] && cat a"),
    ],
)
def test_value_is_json_or_a_yaml_list_or_mapping_or_else_text(text, value):
    changed = apply_updates(document(), [f"x={text}"])["x"]
    assert changed == value and type(changed) is type(value)


def test_updates_apply_in_order_and_leave_the_original_alone():
    original = document()
    assert apply_updates(original, ["name=a", "name=b"])["name"] == "b"
    assert original == document()


@pytest.mark.parametrize(
    ("update", "words"),
    [
        ("name", "path=value"),
        ("=x", "empty"),
        ("a..b=x", "empty"),
        ("name.first=x", "name is 'n'"),
        ("prerequisites.uri=x", "is a list"),
        ("prerequisites.2.uri=x", "has 1 item$"),
        ("prerequisites.-2.uri=x", "has 1 item$"),
        ("a.1=x", "has 0 items"),
        ("a=[{name: x]", "a: invalid YAML: .*; put text that begins with a bracket in double quotes"),
        ("a=[ -f a ] && cat a", "a: invalid YAML: .*in double quotes"),
        ("a=" + "[" * 100_000, "a: nested deeper than 100 levels"),
    ],
)
def test_update_that_cannot_be_applied_is_an_error(update, words):
    with pytest.raises(ConfigError, match=words):
        apply_updates(document(), [update])
