"""The points of a sweep, the names of its jobs, and its values in a command."""

import pytest

from openpai_tasks.errors import ConfigError, PathError, ProtocolError
from openpai_tasks.sdk.sweeps import grid, records
from openpai_tasks.sdk.sweeps.sweep import SweepJob, check_sweep, describe_progress


def test_axes_make_a_grid_in_their_order():
    found = grid.parse_points(["lr=0.1,0.01", "bs=32,64"])
    assert [tuple(point.values()) for point in found] == [
        ("0.1", "32"),
        ("0.1", "64"),
        ("0.01", "32"),
        ("0.01", "64"),
    ]


def test_range_expands_to_every_whole_number_in_it():
    assert [point["seed"] for point in grid.parse_points(["seed=1..3,7"])] == ["1", "2", "3", "7"]
    assert [point["n"] for point in grid.parse_points(["n=1..-1"])] == ["1", "0", "-1"]


def test_a_point_that_is_given_twice_counts_once():
    assert len(grid.parse_points(["a=1,1,2"])) == 2


def test_no_axis_and_no_file_give_no_points():
    assert grid.parse_points([]) == []


@pytest.mark.parametrize("axis", ["lr", "lr=", "=1"])
def test_an_axis_needs_a_name_and_values(axis):
    with pytest.raises((ConfigError, ProtocolError)):
        grid.parse_points([axis])


def test_axis_name_that_is_not_a_valid_variable_is_refused():
    with pytest.raises(ProtocolError, match="learning-rate"):
        grid.parse_points(["learning-rate=1"])


def test_same_axis_name_cannot_be_used_twice():
    with pytest.raises(ConfigError, match="twice"):
        grid.parse_points(["lr=1", "lr=2"])


def test_an_excessive_grid_is_refused():
    with pytest.raises(ConfigError, match="has 1000000000000 points, more than"):  # more than fit into memory
        grid.parse_points(["a=1..10000", "b=1..10000", "c=1..10000"])
    with pytest.raises(ConfigError, match="more than"):
        grid.parse_points(["a=1..1000000000000"])


FILES = {
    "rows.csv": "lr,opt\n0.1,sgd\n0.01,\n",
    "rows.tsv": "lr\topt\n0.1\tsgd\n0.01\t\n",
    "rows.jsonl": '{"lr": 0.1, "opt": "sgd"}\n\n{"lr": 0.01, "opt": null}\n',
    "lines.json": '{"lr": 0.1, "opt": "sgd"}\n{"lr": 0.01, "opt": ""}\n',
    "rows.json": '[{"lr": 0.1, "opt": "sgd"}, {"lr": 0.01, "opt": ""}]',
    "rows.yaml": "- {lr: 0.1, opt: sgd}\n- lr: 0.01\n  opt:\n",
}


@pytest.mark.parametrize("name", FILES)
def test_rows_are_read_from_every_file_format(tmp_path, name):
    (tmp_path / name).write_text(FILES[name])
    found = grid.parse_points([], str(tmp_path / name))
    assert found == [{"lr": "0.1", "opt": "sgd"}, {"lr": "0.01", "opt": ""}]


def test_rows_and_axes_are_combined(tmp_path):
    (tmp_path / "rows.csv").write_text("a\n1\n2\n")
    assert len(grid.parse_points(["b=x,y,z"], str(tmp_path / "rows.csv"))) == 6


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "lr,bs\n1\n", "row 1"),
        ("a.csv", "", "no rows"),
        ("a.jsonl", '{"a": 1}\n{"b": 1}\n', "row 2"),
        ("a.jsonl", '{"a": 1}\n{\n', "line 2"),
        ("a.yaml", "a: 1\n", "list of rows"),
        ("a.yaml", "- [\n", "not YAML"),
        ("a.yaml", "- 1\n", "row 1"),
    ],
)
def test_a_file_without_proper_rows_is_refused(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=words):
        grid.parse_points([], str(tmp_path / name))


def test_error_names_a_missing_file():
    with pytest.raises(PathError, match=r"none\.csv"):
        grid.parse_points([], "none.csv")


def test_job_names_contain_the_point_and_are_valid():
    names = grid.job_names("tune", [{"lr": "0.1", "opt": "adam w"}, {"lr": "-3", "opt": "/a/b"}])
    assert names == ["tune-lr-0_1-opt-adam_w", "tune-lr-m3-opt-a_b"]


def test_job_names_that_would_be_equal_get_a_hash():
    names = grid.job_names("s", [{"x": "a b"}, {"x": "a_b"}, {"x": "c"}])
    assert len(set(names)) == 3 and names[2] == "s-x-c" and names[0].startswith("s-x-a_b-")


def test_long_job_names_stay_within_the_limit_of_servers():
    names = grid.job_names("s", [{"x": "y" * 500}, {"x": "y" * 501}])
    assert len(set(names)) == 2 and max(map(len, names)) <= 255


def test_placeholders_are_filled_as_one_word_and_other_braces_stay():
    point = {"lr": "0.1", "note": "two words", "x": "1"}
    command = "run --lr {lr} {note} ${lr} {other} awk '{print}' {{x}} \\{x}"
    expected = "run --lr 0.1 'two words' ${lr} {other} awk '{print}' {{x}} \\{x}"
    assert grid.fill_command(command, point) == expected


def test_record_is_read_back_even_if_its_last_line_was_cut(tmp_path):
    record = records.load(tmp_path, "local", "tune")
    record.begin("id")
    record.add("tune-a-1", {"a": "1"})
    with record.path.open("a") as file:
        file.write('{"job": "tu')
    again = records.load(tmp_path, "local", "tune")
    assert again.points == {"tune-a-1": {"a": "1"}}
    again.begin("id")
    again.add("tune-a-2", {"a": "2"})
    assert len(records.load(tmp_path, "local", "tune").points) == 2
    with pytest.raises(ConfigError, match="another command"):
        again.begin("other")
    assert record.path.stat().st_mode & 0o777 == 0o600


def test_progress_counts_states_and_check_names_the_failed():
    rows = [SweepJob("a", {}, "SUCCEEDED"), SweepJob("b", {}, "FAILED"), SweepJob("c", {})]
    assert describe_progress("s", rows) == "sweep s: 3 jobs, 1 FAILED, 1 SUCCEEDED, 1 not submitted"
    with pytest.raises(Exception, match="1 of 3 jobs of sweep 's' did not succeed: b"):
        check_sweep("s", rows)


def test_record_is_not_written_through_a_symlink_that_came_with_the_folder(tmp_path):
    (tmp_path / "theirs").write_text("mine\n")
    path = tmp_path / ".openpai" / "sweeps" / "lab" / "one.jsonl"
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "theirs")
    with pytest.raises(ConfigError, match="cannot write"):
        records.load(tmp_path, "lab", "one").begin("identity")
    assert (tmp_path / "theirs").read_text() == "mine\n"
