"""Users and groups over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.conftest import Api, ServerProcess, code

FORBIDDEN = (403, "ForbiddenUserError")
INVALID = (400, "InvalidParametersError")


def make(api: Api, name: str, **more: Any) -> Any:
    """Create a user, and return it as the server shows it."""
    answer = api.post("/api/v2/users", {"username": name, "password": f"{name}-secret", **more})
    assert answer.status_code == 201, answer.text
    return api.get(f"/api/v2/users/{name}").json()


def test_a_user_has_every_field_under_both_spellings(admin: Api, alice: Api) -> None:
    expected = {
        "username": "alice",
        "grouplist": ["default"],
        "email": "",
        "extension": {},
        "admin": False,
        "virtualCluster": ["default"],
        "storageConfig": ["home"],
    }
    for path in ("/api/v2/users/alice", "/api/v2/user/alice", "/api/v1/user/alice"):
        assert alice.get(path).json() == expected
    assert expected in alice.get("/api/v2/users").json()


def test_unknown_user_is_400_when_read_and_404_when_changed(admin: Api) -> None:
    assert code(admin.get("/api/v2/users/nobody")) == (400, "NoUserError")
    assert code(admin.delete("/api/v2/users/nobody")) == (404, "NoUserError")
    assert code(admin.put("/api/v2/users/nobody/admin", {"admin": True})) == (404, "NoUserError")


def test_user_is_created_with_virtual_clusters_and_rights(admin: Api) -> None:
    user = make(admin, "carol", email="c@x.org", virtualCluster=["lab"], admin=True, extension={"a": 1})
    assert user["grouplist"] == ["default", "lab", "admingroup"]
    assert (user["admin"], user["virtualCluster"]) == (True, ["default", "lab"])
    assert (user["email"], user["extension"]) == ("c@x.org", {"a": 1})


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a~b", "", "x" * 101, "a b", 7])
def test_user_name_that_cannot_be_a_folder_is_refused(admin: Api, name: object) -> None:
    assert code(admin.post("/api/v2/users", {"username": name, "password": "long-enough"})) == INVALID


def test_a_bad_new_user_is_refused_with_the_right_code(admin: Api, alice: Api) -> None:
    fine = {"username": "dora", "password": "dora-secret"}
    assert code(admin.post("/api/v2/users", {**fine, "username": "alice"})) == (409, "ConflictUserError")
    assert code(admin.post("/api/v2/users", {**fine, "virtualCluster": ["x"]})) == (
        400,
        "NoVirtualClusterError",
    )
    wrong = {"email": "no", "password": "short", "admin": "maybe", "extension": [], "other": 1}
    for name, value in wrong.items():
        assert code(admin.post("/api/v2/users", {**fine, name: value})) == INVALID
    assert code(alice.post("/api/v2/users", fine)) == FORBIDDEN
    assert code(admin.get("/api/v2/users/dora")) == (400, "NoUserError")


def test_an_admin_updates_all_fields_or_patches_some(admin: Api) -> None:
    make(admin, "erin", extension={"keep": 1})
    assert code(admin.put("/api/v2/users", {"data": {"username": "erin"}, "patch": False})) == INVALID
    patch = {"username": "erin", "email": "e@x.org", "extension": {"more": 2}}
    assert admin.put("/api/v2/users", {"data": patch, "patch": True}).status_code == 201
    user = admin.get("/api/v2/users/erin").json()
    assert (user["email"], user["extension"]) == ("e@x.org", {"keep": 1, "more": 2})
    whole = {
        "username": "erin",
        "email": "",
        "virtualCluster": ["lab"],
        "admin": False,
        "password": "another-secret",
        "extension": {},
    }
    assert admin.put("/api/v2/users", {"data": whole, "patch": False}).status_code == 201
    user = admin.get("/api/v2/users/erin").json()
    assert (user["virtualCluster"], user["extension"]) == (["default", "lab"], {})
    assert code(admin.put("/api/v2/users", {"data": {**whole, "username": "nobody"}})) == (404, "NoUserError")


def test_users_change_their_own_profile_and_no_other(admin: Api, alice: Api) -> None:
    data = {"username": "alice", "email": "a@x.org", "extension": {"sshKeys": []}}
    assert alice.put("/api/v2/users/me", {"data": data, "patch": True}).status_code == 201
    assert alice.get("/api/v2/users/alice").json()["extension"] == {"sshKeys": []}
    assert code(alice.put("/api/v2/users/me", {"data": {**data, "username": "bob"}})) == FORBIDDEN
    assert code(alice.put("/api/v2/users/me", {"data": {"username": "alice", "admin": True}})) == INVALID
    assert alice.put("/api/v2/users/alice/email", {"email": ""}).status_code == 201
    assert alice.put("/api/v2/users/alice/extension", {"extension": {}}).status_code == 201
    make(admin, "frank")
    assert code(alice.put("/api/v2/users/frank/email", {"email": ""})) == FORBIDDEN
    assert code(alice.put("/api/v2/users/alice/admin", {"admin": True})) == FORBIDDEN


def test_a_password_change_needs_the_old_one_and_ends_other_sessions(
    server: ServerProcess, admin: Api
) -> None:
    make(admin, "gina")
    gina, elsewhere = (server.login("gina", "gina-secret") for _ in range(2))
    path = "/api/v2/users/gina/password"
    wrong = {"oldPassword": "not-it", "newPassword": "gina-secret-2"}
    assert code(gina.put(path, wrong)) == FORBIDDEN
    assert gina.put(path, {**wrong, "oldPassword": "gina-secret"}).status_code == 201
    assert code(elsewhere.get("/api/v2/users")) == (401, "UnauthorizedUserError")
    assert gina.get("/api/v2/users").status_code == 200  # the token that made the change
    me = {"username": "gina", "oldPassword": "gina-secret-2", "newPassword": "gina-secret-4"}
    assert gina.put("/api/v2/users/me", {"data": me, "patch": True}).status_code == 201
    assert gina.get("/api/v2/users").status_code == 200
    assert server.login("gina", "gina-secret-4")
    assert admin.put(path, {"newPassword": "gina-secret-3"}).status_code == 201
    assert code(gina.get("/api/v2/users")) == (401, "UnauthorizedUserError")
    assert server.login("gina", "gina-secret-3")


def test_new_password_of_the_owner_is_saved_for_the_command_line(own_server: ServerProcess) -> None:
    own_server.start()
    name = own_server.owner["user"]
    answer = own_server.admin().put(f"/api/v2/users/{name}/password", {"newPassword": "a-new-secret"})
    assert answer.status_code == 201
    assert own_server.owner == {"user": name, "password": "a-new-secret"}
    assert own_server.admin()


def test_groups_of_a_user_are_set_added_and_removed(admin: Api) -> None:
    make(admin, "hana")
    path = "/api/v2/users/hana"
    assert admin.put(f"{path}/group", {"groupname": "lab"}).status_code == 201
    assert admin.get(path).json()["virtualCluster"] == ["default", "lab"]
    assert admin.delete(f"{path}/group", json={"groupname": "lab"}).status_code == 201
    assert admin.get(path).json()["grouplist"] == ["default"]
    assert admin.put(f"{path}/grouplist", {"grouplist": ["default", "lab"]}).status_code == 201
    assert admin.put(f"{path}/virtualcluster", {"virtualCluster": []}).status_code == 201
    assert admin.get(path).json()["grouplist"] == ["default"]
    assert code(admin.put(f"{path}/group", {"groupname": "none"})) == (404, "NoGroupError")
    assert code(admin.put(f"{path}/grouplist", {"grouplist": ["none"]})) == (404, "NoGroupError")
    assert code(admin.put(f"{path}/grouplist", {"grouplist": "lab"})) == INVALID


def test_only_users_without_admin_rights_can_be_removed_with_their_tokens(
    server: ServerProcess, admin: Api, owner: str
) -> None:
    assert code(admin.delete(f"/api/v2/users/{owner}")) == (403, "RemoveAdminError")
    make(admin, "ivan")
    ivan = server.login("ivan", "ivan-secret")
    assert admin.delete("/api/v2/users/ivan").status_code == 200
    assert code(ivan.get("/api/v2/users")) == (401, "UnauthorizedUserError")


def test_rights_change_at_once_with_the_groups(server: ServerProcess, admin: Api) -> None:
    make(admin, "judy")
    judy = server.login("judy", "judy-secret")
    assert code(judy.get("/api/v2/kubernetes/nodes")) == FORBIDDEN
    admin.put("/api/v2/users/judy/admin", {"admin": True})
    assert judy.get("/api/v2/kubernetes/nodes").status_code == 200
    admin.put("/api/v2/users/judy/admin", {"admin": False})
    assert code(judy.get("/api/v2/kubernetes/nodes")) == FORBIDDEN


def test_group_is_created_read_changed_and_removed(admin: Api, alice: Api) -> None:
    team = {
        "groupname": "team",
        "description": "d",
        "externalName": "",
        "extension": {"acls": {"admin": False}},
    }
    assert admin.post("/api/v2/groups", team).status_code == 201
    assert code(admin.post("/api/v2/groups", team)) == (409, "ConflictGroupError")
    assert alice.get("/api/v2/group/team").json() == team
    assert team in alice.get("/api/v2/groups").json()
    patch = {"data": {"groupname": "team", "description": "new"}, "patch": True}
    assert admin.put("/api/v2/groups", patch).status_code == 201
    assert admin.get("/api/v2/groups/team").json() == {**team, "description": "new"}
    assert admin.put("/api/v2/groups", team).status_code == 201  # as the JavaScript SDK sends it
    assert admin.get("/api/v2/groups/team").json() == team
    make(admin, "kate")
    admin.put("/api/v2/users/kate/group", {"groupname": "team"})
    assert admin.get("/api/v2/groups/team/userlist").json() == [{"username": "kate", "clusterAdmin": False}]
    assert admin.delete("/api/v2/groups/team").status_code == 200
    assert admin.get("/api/v2/users/kate").json()["grouplist"] == ["default"]
    assert code(admin.get("/api/v2/groups/team")) == (400, "NoGroupError")
    assert code(admin.delete("/api/v2/groups/team")) == (404, "NoGroupError")


def test_single_fields_of_a_group_can_be_set(admin: Api) -> None:
    admin.post("/api/v2/groups", {"groupname": "crew"})
    path = "/api/v2/groups/crew"
    assert admin.put(f"{path}/description", {"description": "x"}).status_code == 201
    assert admin.put(f"{path}/externalname", {"externalName": "y"}).status_code == 201
    assert admin.put(f"{path}/extension", {"extension": {"a": 1}}).status_code == 201
    assert admin.put(f"{path}/extension/acls/virtualClusters", {"data": ["lab"]}).status_code == 201
    assert admin.get(path).json() == {
        "groupname": "crew",
        "description": "x",
        "externalName": "y",
        "extension": {"a": 1, "acls": {"virtualClusters": ["lab"]}},
    }
    assert code(admin.put(f"{path}/description", {"description": 1})) == INVALID


def test_built_in_groups_are_protected_and_only_admins_manage_groups(admin: Api, alice: Api) -> None:
    for name in ("default", "admingroup"):
        assert code(admin.delete(f"/api/v2/groups/{name}")) == FORBIDDEN
    assert "default" in json.dumps(admin.get("/api/v2/users/alice").json()["grouplist"])
    assert code(alice.post("/api/v2/groups", {"groupname": "x"})) == FORBIDDEN
    assert code(alice.get("/api/v2/groups/default/userlist")) == FORBIDDEN
    assert code(admin.post("/api/v2/groups", {"groupname": "a-b"})) == INVALID
