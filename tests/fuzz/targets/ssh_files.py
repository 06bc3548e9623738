"""Files of ssh: the user's configuration, host keys, private and public keys, and our hosts file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from openpai_tasks.sdk.ssh import host_blocks, host_keys, keys, user_config
from openpai_tasks.server.ssh import plugin
from openpai_tasks.settings.key_pairs import new_pair
from tests.fuzz.scratch import empty_folder, home_folder
from tests.fuzz.target import Target


def _config(data: bytes) -> object:
    with home_folder({".ssh/config": data}):
        found = user_config.named_hosts(), user_config.is_included()
        user_config.include_hosts()
        assert user_config.is_included(), "the user's configuration does not include our file"
        return found


def _hosts_file(data: bytes) -> object:
    with home_folder({".openpai/ssh/config": data}):
        for _, block in host_blocks.read_blocks():
            names = host_blocks.host_names(block)
            host_blocks.key_aliases(block)
            host_blocks.without_names(block, sorted(names)[:1])
        return host_blocks.drop_blocks(lambda job: job[0] == "lab")


def _known_hosts(data: bytes) -> object:
    file = empty_folder("ssh") / "known_hosts"
    file.write_bytes(data)
    return host_keys.known_keys(file, "[host]:2222")


def _private_key(data: bytes) -> object:
    path = _key_file("key", data)
    keys.public_key(_settings(path))
    return keys.check(path, "ssh.key")


def _public_key(data: bytes) -> object:
    path = _key_file("key.pub", data)
    list(plugin.public_keys(data.decode("utf-8", "replace")))
    return keys.public_key(_settings(path.with_name("key")))


def _key_file(name: str, data: bytes) -> Path:
    folder = empty_folder("ssh")
    (folder / "key").write_bytes(b"")
    (folder / name).write_bytes(data)
    return folder / name


def _settings(path: Path) -> Any:
    return cast(Any, SimpleNamespace(ssh_key=str(path)))


PAIR = new_pair("me")
CONFIG = b"""Include ~/.ssh/other "a b" %d/c\nHost lab lab-*\n  HostName=lab.example.com\n  User "me"
Match host x exec "true"\n\tPort 22 # comment\n"""
HOSTS = (
    b"# Hosts of jobs\n\n# job lab me~train\nHost openpai-gateway-1\n  HostName gate\n"
    b"Host train train-worker-0\n"
    b"  HostName 10.0.0.1\n  HostKeyAlias lab-train-0\n  Port 2222\n# job local me~b\nHost b\n"
)
KNOWN = (
    f"[host]:2222 {PAIR.public}\n|1|AAAAAAAAAAAAAAAAAAAAAAAAAAA=|AAAAAAAAAAAAAAAAAAAAAAAAAAA= {PAIR.public}\n"
    f"# comment\n@revoked * {PAIR.public}\n*.example.com,10.0.0.1 {PAIR.public}\n"
).encode()

TARGETS = (
    Target("ssh-config", _config, (CONFIG,)),
    Target("ssh-hosts-file", _hosts_file, (HOSTS,)),
    Target("known-hosts", _known_hosts, (KNOWN,)),
    Target("private-key", _private_key, (PAIR.private.encode(),)),
    Target("public-key", _public_key, (f"{PAIR.public}\n".encode(),)),
)
