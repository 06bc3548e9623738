"""Restoring secrets where they are used."""

from openpai_tasks.protocol.document import scripts
from openpai_tasks.sdk.jobs.unmasking import secret_names, unmask

MASKED = {"secrets": "******"}


def roles(*commands):
    return {"taskRoles": {"main": {"commands": list(commands)}}}


def test_each_secret_is_requested_once():
    document = {**MASKED, **roles("a <% $secrets.x %> <%$secrets.y%>", "b <% $secrets.x %>")}
    asked = []
    found = unmask(document, ["unused"], lambda name: asked.append(name) or f"value of {name}")
    assert asked == ["x", "y", "unused"]
    assert found["secrets"] == {name: f"value of {name}" for name in asked}


def test_nested_secrets_keep_their_shape():
    document = {**MASKED, "prerequisites": [{"auth": {"password": "<% $secrets.hub.password %>"}}]}
    assert secret_names(document, ["hub"]) == ["hub.password"]
    assert unmask(document, (), str.upper)["secrets"] == {"hub": {"password": "HUB.PASSWORD"}}


def test_existing_secrets_are_not_changed():
    document = {"secrets": {"x": "y"}, **roles("<% $secrets.x %>")}
    assert unmask(document, (), lambda name: "other") == document
    assert unmask(roles("true"), ("x",), lambda name: "other") == roles("true")


def test_masked_registry_password_is_requested():
    document = {"prerequisites": [{"name": "img", "auth": {"username": "u", "password": "******"}}]}
    [image] = unmask(document, (), lambda name: f"for {name}")["prerequisites"]
    assert image["auth"] == {"username": "u", "password": "for img_password"}


def test_generated_export_is_rewritten_for_the_new_value():
    for before, after in (("plain", "it's"), ("it's", "plain"), ("it's", "a&b")):
        step = scripts.step(scripts.export_secret("KEY", before))
        found = unmask({**MASKED, **roles(step)}, (), lambda name, after=after: after)
        assert found["taskRoles"]["main"]["commands"] == [scripts.step(scripts.export_secret("KEY", after))]
        assert found["secrets"] == {"KEY": scripts.secret_value(after)}
