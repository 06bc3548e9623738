"""Data classes whose methods are generated on first use behave like standard ones."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading

import pytest

from openpai_tasks.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Point:
    x: int
    kind: str = "plain"
    notes: list[str] = dataclasses.field(default_factory=list)

    @property
    def double(self) -> int:
        return 2 * self.x


@dataclass(frozen=True)
class Named(Point):
    name: str = ""


def fresh():
    """Return a new class, of which nothing has been used."""

    @dataclass(frozen=True)
    class Fresh:
        a: int
        b: int = 2

    return Fresh


def test_nothing_is_generated_before_the_first_use():
    cls = fresh()
    assert "__init__" not in vars(cls)
    assert cls(1) == cls(a=1, b=2)
    assert "__init__" in vars(cls)


def test_instances_are_frozen_values():
    point = Point(1, kind="big")
    assert repr(point) == "Point(x=1, kind='big', notes=[])" and point.double == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        Point()  # type: ignore[call-arg]


def test_subclasses_inherit_fields_of_classes_that_were_not_used():
    assert [one.name for one in dataclasses.fields(Named)] == ["x", "kind", "notes", "name"]
    assert Named(1, name="n") == Named(1, "plain", [], "n")


def test_standard_functions_work_before_the_first_instance():
    assert dataclasses.is_dataclass(fresh())
    assert [one.name for one in dataclasses.fields(fresh())] == ["a", "b"]


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_are_equal(twin):
    assert twin(Named(1, name="n")) == Named(1, name="n")


def test_replace_makes_a_changed_copy():
    assert dataclasses.replace(Point(1), x=3) == Point(3)


def test_threads_that_make_the_first_instances_all_succeed():
    for _ in range(50):
        cls, made, start = fresh(), [], threading.Barrier(4)

        def make(cls=cls, made=made, start=start):
            start.wait()
            made.append(cls(1).b)

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [2] * 4


def test_methods_of_the_class_are_kept():
    @dataclass(frozen=True)
    class Own:
        a: int

        def __repr__(self):
            return "own"

        def __eq__(self, other):
            return True

    assert repr(Own(1)) == "own" and Own(1) == Own(2) and hash(Own(1)) != hash(Own(2))
