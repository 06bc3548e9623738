"""Values as text."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from openpai_tasks.errors import ConfigError
from openpai_tasks.render import text as render


@dataclass(frozen=True)
class Row:
    name: str
    gpus: int | None
    tags: tuple[str, ...] = ()
    home: Path = Path("/x")


ROWS = [Row("one", 1, ("a", "b")), Row("three", None)]


def test_table_has_aligned_columns_and_a_dash_for_missing_values():
    assert render.format_values(ROWS, ("name", "gpus", "tags")).splitlines() == [
        "NAME   GPUS  TAGS",
        "one       1  a, b",
        "three     -  -",
    ]


def test_json_contains_every_field_whatever_the_columns():
    assert json.loads(render.format_values(ROWS, ("name",), "json"))[0] == {
        "name": "one",
        "gpus": 1,
        "tags": ["a", "b"],
        "home": "/x",
    }


def test_yaml_has_the_same_content_as_json():
    assert yaml.safe_load(render.format_values(ROWS, (), "yaml")) == json.loads(
        render.format_values(ROWS, (), "json")
    )


def test_control_characters_in_a_cell_are_escaped():
    assert render.cell("name", "a\x1b[2Jb\nc") == r"a\x1b[2Jb\nc"


def test_error_for_an_unknown_format_names_the_known_ones():
    with pytest.raises(ConfigError, match=r"'xml' .*table, json, yaml"):
        render.format_values([], (), "xml")


@pytest.mark.parametrize(
    "count, expected", [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 30, "5.0 GiB")]
)
def test_sizes_are_shown_in_a_readable_unit(count, expected):
    assert render.size(count) == expected


@pytest.mark.parametrize("seconds, expected", [(0.25, "0.2s"), (75, "1m 15s"), (3725, "1h 02m")])
def test_durations_have_two_units(seconds, expected):
    assert render.duration(seconds) == expected


@dataclass(frozen=True)
class Point:
    name: str
    point: dict
    result: dict


POINTS = [
    Point("a", {"lr": "1", "name": "x"}, {"lr": 1, "loss": 0.5}),
    Point("b", {"lr": "2"}, {"lr": 3, "ok": True}),
]


def test_mappings_in_rows_become_columns_with_unique_names():
    rows, columns = render.flat(POINTS)
    assert columns == ["name", "lr", "point.name", "loss", "result.lr", "ok"]
    assert rows[1] == {"name": "b", "lr": "2", "result.lr": 3, "ok": True}
    assert str(render.flat_table(POINTS)).splitlines()[1].split() == ["a", "1", "x", "0.5", "-", "-"]


def test_csv_has_all_columns_and_quotes_values_where_needed():
    text = render.format_values(POINTS, render.flat_table, "csv")
    assert text == "name,lr,point.name,loss,result.lr,ok\na,1,x,0.5,,\nb,2,,,3,true"
    assert render.format_values([{"a": 'x,"y"', "b": [1], "c": 2}], ("a", "b"), "csv") == 'a,b\n"x,""y""",[1]'
