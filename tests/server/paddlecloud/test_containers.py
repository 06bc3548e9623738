"""Tasks of PaddleCloud in containers: PFS is where its paths say."""

from __future__ import annotations

import pytest

from tests.server.conftest import ServerProcess
from tests.server.container_engines import IMAGE, engine_kit
from tests.server.paddlecloud.conftest import sign_in

pytestmark = pytest.mark.timeout(300)


def test_home_is_mounted_at_its_path_in_pfs(own_server: ServerProcess):
    with engine_kit("podman") as kit, pytest.MonkeyPatch.context() as patch:
        for name, value in kit.environment.items():
            patch.setenv(name, value)
        uri = own_server.start("--engine", "podman")["uri"]
        owner = own_server.owner
        user = sign_in(own_server, f"{uri}/paddlecloud", owner["user"], owner["password"])
        model = "/pfs/dc1/home/$PADDLE_CLOUD_USERNAME/model"
        entry = f'pwd; echo "$TRAINER_PACKAGE"; cat ../../data; echo trained > {model}'
        user.package("boxed")
        (user.home / "data").write_text("of PFS\n")
        user.submit("boxed", entry, image=IMAGE, datacenter="dc1", pservers=1)
        assert user.ended("boxed")["succeeded"] == 1, user.logs("boxed")
        package = f"/pfs/dc1/home/{user.name}/jobs/boxed"
        assert user.logs("boxed").endswith(f"=\n{package}\n{package}\nof PFS\n")
        assert (user.home / "model").read_text() == "trained\n"
        own_server.end()
