from __future__ import annotations

import pytest

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol.document.template import escape_brackets, render

NAMES = {
    "$parameters": {
        "lr": 0.01,
        "zero": 0,
        "no": False,
        "null": None,
        "empty": "",
        "text": 'a <b> & "c"',
        "list": [64, [1, None, "x"], {"k": "v"}],
        "deep": {"er": {"est": [7, 8]}},
        "a.b": "dotted",
    },
    "$data": {"uri": ["hdfs://a", "hdfs://b"]},
    "$script": None,
}


RENDERED = {
    "<%$parameters.lr%>/<%  $parameters.lr\n%>": "0.01/0.01",
    "<% $parameters.zero %> <% $parameters.no %>": "0 false",
    "[<% $parameters.empty %>]": "[]",
    "<% $parameters.text %>": 'a <b> & "c"',
    "<% $parameters.list %>": "64,1,,x,[object Object]",
    "<% $parameters.list[1][2] %> <% $parameters.list.2.k %>": "x v",
    "<% $parameters.list.length %> <% $parameters.text[0] %>": "3 a",
    "<% $parameters.deep.er.est[1] %>": "8",
    "<% $parameters %>": "[object Object]",
    "<% $data.uri[1] %>": "hdfs://b",
    "<%$parameters.null%> <%$parameters.list[9]%>": "<% $parameters.null %> <% $parameters.list.9 %>",
    "<% $parameters.a.b %> <% $secrets.x %>": "<% $parameters.a.b %> <% $secrets.x %>",
    "<% $script.uri %> <%%>": "<% $script.uri %> <%  %>",
    "a<%! a note %>b": "ab",
    "a\n  <%! alone on its line %>\nb": "a\nb",
    "a<%# x %>b<% $parameters.lr %><%/ x %>c": "ac",
    "<%{ $parameters.lr }%><%& $parameters.lr %><%> part %>x": "x",
    "<%=<< >>=%><< $parameters.lr >> <% $parameters.lr %>": "0.01 <% $parameters.lr %>",
    "{{ $parameters.lr }} 100 % > < %>": "{{ $parameters.lr }} 100 % > < %>",
    "\ufeff\u00a0 x \t\n": "x",
    "": "",
}


def test_template_renders_like_on_the_real_server():
    assert {template: render(template, NAMES) for template in RENDERED} == RENDERED


def test_a_broken_template_is_refused():
    crossed = "<%# a %><%# b %><%/ a %><%/ b %>"
    for template in ("<% $parameters.lr", "<%# a %>x", "x<%/ a %>", crossed, "<%= x =%>", "<%= $x %>"):
        with pytest.raises(ProtocolError, match="template"):
            render(template, NAMES)


def test_escaped_text_renders_to_itself():
    text = "echo '<% $parameters.lr %>' <% <%! x"
    assert render(escape_brackets(text, "open"), {"$parameters": {"open": "<%", "lr": 1}}) == text


def test_long_template_renders_quickly():
    assert render("<%" + " " * 1_000_000 + "a %>" + " x" * 100_000, {"a": 1}).startswith("1 x")


def test_container_runtime_escapes_secrets_and_drops_unknown_variables():
    text = "a <% $secrets.word %> b <% $parameters.nope %> c"
    names = {"$secrets": {"word": '"1" & <2>'}}
    assert render(text, names, in_container=True) == "a &quot;1&quot; &amp; &lt;2&gt; b  c"


def test_template_that_renders_to_a_too_long_text_is_refused():
    with pytest.raises(ProtocolError, match="longer than 1500000 characters"):
        render("<% $parameters.a %>" * 4000, {"$parameters": {"a": "x" * 20_000}})
