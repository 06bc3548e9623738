"""Points of long metrics: what is left out, and what stays exact."""

import json
import math
from array import array

import pytest
from hypothesis import given, strategies

from openpai_tasks.sdk.jobs import metric_points
from openpai_tasks.sdk.jobs.metric_points import MOST_KEPT, PointColumns
from openpai_tasks.sdk.jobs.metrics import summarise
from tests.properties.mutations import steady

values = strategies.lists(strategies.floats() | strategies.integers(-3, 3), min_size=1, max_size=400)
sizes = strategies.lists(strategies.integers(1, 90), max_size=9)


@pytest.fixture(scope="module", autouse=True)
def _small():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("STRETCHES", 10), ("MOST_KEPT", 20), ("MOST_HELD", 50)):
            patch.setattr(metric_points, name, value)
        yield


def columns(numbers, is_thinned, pieces=(), has_steps=True):
    """Add points in pieces of these sizes, and the rest at the end."""
    found, begin = PointColumns(is_thinned), 0
    for size in (*pieces, len(numbers)):
        part = numbers[begin : begin + size]
        steps = array("d", [begin + place if has_steps else math.nan for place in range(len(part))])
        found.extend(0, array("d", part), steps, steps)
        begin += size
    found.thin_out()
    return found


def same(one, other):
    return repr(one) == repr(other)  # NaN is not equal to itself


@steady(100)
@given(values, sizes)
def test_a_thinned_metric_has_its_exact_numbers_and_extremes(numbers, pieces):
    whole, thinned = columns(numbers, False), columns(numbers, True, pieces)
    assert same(thinned.summary, whole.summary) and same(thinned.summary, summarise(list(whole)))
    kept, points = list(thinned), list(whole)
    assert len(points) == len(numbers) and {*map(repr, kept)} <= {*map(repr, points)}
    assert len(kept) <= max(20, 2 + 3 * 11)
    assert same((kept[0], kept[-1]), (points[0], points[-1]))
    finite = [point.value for point in kept if math.isfinite(point.value)]
    assert min(finite, default=None) == whole.summary.min and max(finite, default=None) == whole.summary.max
    assert any(not math.isfinite(point.value) for point in kept) == (not all(map(math.isfinite, numbers)))
    assert [point.step for point in kept] == sorted(point.step for point in kept)


@steady(30)
@given(values, sizes, values)
def test_kept_points_can_be_extended(numbers, pieces, more):
    found = PointColumns.from_json(json.loads(json.dumps(columns(numbers, True, pieces).as_json())))
    steps = array("d", range(len(numbers), len(numbers) + len(more)))
    found.extend(0, array("d", more), steps, steps)
    assert same(found.summary, columns(numbers + more, False).summary)


def test_points_without_a_step_have_their_place_if_some_are_left_out():
    few = columns([5.0] * 20, True, has_steps=False)
    assert {point.step for point in few} == {None} and few.summary.step is None
    many = columns([float(place) for place in range(400)], True, has_steps=False)
    assert all(point.step == point.value for point in many) and many.summary.step is None


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value[:-1],
        lambda value: [*value, []],
        lambda value: [0, *value[1:]],
        lambda value: [*value[:-1], value[-1][1:]],
        lambda value: [*value[:-1], ["x"] * len(value[-1])],
        lambda value: [*value[:5], 0, *value[6:]],
        lambda value: {"count": 3},
        lambda value: 7,
    ],
)
def test_damaged_values_are_refused(change):
    value = columns([1.0, 2.0, 3.0], True).as_json()
    with pytest.raises((ValueError, TypeError, OverflowError)):
        PointColumns.from_json(change(value))


def test_the_usual_limits_fit_together():
    assert MOST_KEPT == 2000
