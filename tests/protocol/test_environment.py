import pytest

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol import environment


def test_only_where_programs_are_and_the_locale_is_sent():
    given = {
        "PATH": "/a:/b",
        "VIRTUAL_ENV": "/v",
        "CONDA_PREFIX": "/c",
        "PYTHONPATH": "src",
        "LD_LIBRARY_PATH": "/l",
        "LANG": "C",
        "LC_ALL": "C.UTF-8",
    }
    others = {"HOME": "/h", "AWS_SECRET_ACCESS_KEY": "x", "LC_X=Y": "z", "PATHS": "p", "lang": "C"}
    assert environment.select({**given, **others, "LC_TIME": ""}) == given


def test_every_byte_of_a_path_survives_the_header():
    given = {"PATH": b"/a b:/\xff\n/\xc3\xa4".decode("utf-8", "surrogateescape")}
    header = environment.encode(given)
    assert header.isascii() and header.isprintable()
    assert environment.decode(header) == given


def test_a_header_that_is_not_an_object_of_texts_is_refused():
    for text in ("", "x", "[]", '{"PATH": 1}', '{"PATH": "a\\u0000b"}', "[" * 60_000):
        with pytest.raises(ProtocolError, match="must be a JSON object of texts"):
            environment.decode(text)


def test_a_virtual_environment_comes_before_conda():
    assert environment.python_folder({"VIRTUAL_ENV": "/v", "CONDA_PREFIX": "/c"}) == "/v"
    assert environment.python_folder({"VIRTUAL_ENV": "", "CONDA_PREFIX": "/c"}) == "/c"
    assert environment.python_folder({}) == ""
