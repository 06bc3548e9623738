"""What OpenPAI's guide to HDFS prints works as printed, apart from host names, on a real HDFS."""

import getpass
import json
import os
import re
import shlex

import pytest
import requests

from tests.needs import needs
from tests.storage.gateway import Gateway
from tests.storage.relay import Relay

CREATE = 'curl -i -X PUT "http://master-node-address/webhdfs/api/v1/test/test_file?op=CREATE"'
WRITE = 'curl -i -X PUT -T file-data-to-write "returned-location-uri"'
DELETE = 'curl -i -X DELETE "http://master-node-address/webhdfs/api/v1/test/test_file?op=DELETE"'

ATTACH = (
    "opai cluster attach-hdfs --cluster-alias local --storage-alias hdfs "
    "--web-hdfs-uri http://master-node-address/webhdfs --default"
)
STORAGE = """
opai storage list /test
opai storage status /test/test_file
opai storage download /test/test_file ./copied
opai storage upload --overwrite file-data-to-write /test/up
opai storage upload --overwrite file-data-to-write /test/up
opai storage delete /test/up
"""
URIS = """
pai storage.ls hdfs://hdfs-name-node-address:9000/test
pai storage.copy hdfs://hdfs-name-node-address:9000/test/test_file ./native
pai storage.cat hdfs://hdfs-name-node-address:9000/test/test_file
"""
MOUNT = """
mkdir -p your-mount-directory
pai storage.mount hdfs://hdfs-name-node-address:9000 your-mount-directory --background
ls -l your-mount-directory/test
cp your-mount-directory/test/test_file mounted
pai storage.unmount your-mount-directory
"""


@pytest.fixture
def guide(cluster, hdfs):
    """Run lines of the guide in a shell; ``/test`` and the user's folder are open, as on the guide's HDFS."""
    api = f"http://{hdfs.name_node}/webhdfs/v1/{{}}?user.name=root&op={{}}"
    for folder in ("test", getpass.getuser()):
        for change in ("MKDIRS", "SETPERMISSION&permission=777"):
            assert requests.put(api.format(folder, change), timeout=60).ok
    (cluster.project / "file-data-to-write").write_text("of the guide\n")
    own = "127.{}.{}.1".format(*divmod(os.getpid() % 60_000 + 1000, 256))  # its web port is the guide's
    with Gateway(hdfs.name_node) as gateway, Relay(hdfs.name_node, listen=(own, 5070)):
        hosts = {"master-node-address": gateway.host, "hdfs-name-node-address": own}

        def fill(text):
            for name, value in hosts.items():
                text = text.replace(name, value)
            return text

        def run(lines):
            ran = [cluster.run(*shlex.split(fill(line))) for line in lines.strip().splitlines()]
            assert not [one for one in ran if one.code or "Traceback" in one.err], ran
            return [one.out for one in ran]

        run.fill = fill
        yield run
    requests.delete(api.format("test", "DELETE&recursive=true"), timeout=60)


def test_files_are_created_used_and_deleted(guide, cluster):
    (created,) = guide(CREATE)
    (place,) = re.findall(r"(?m)^Location: (\S+)", created)
    (written,) = guide(WRITE.replace("returned-location-uri", place))
    assert "201 Created" in written
    guide(ATTACH)
    listed, status, *_ = guide(STORAGE)
    assert listed.split()[-1] == "test_file" and "13 B" in status
    _, _, shown = guide(URIS)
    assert shown == "of the guide\n"
    assert (cluster.project / "copied").read_text() == (cluster.project / "native").read_text() == shown
    (deleted,) = guide(DELETE)
    assert '{"boolean":true}' in deleted


def test_a_job_of_version_1_has_its_code_from_the_native_address(guide, cluster):
    guide("opai storage upload file-data-to-write hdfs://hdfs-name-node-address:9000/test/code/data")
    role = {"name": "main", "taskNumber": 1, "cpuNumber": 1, "memoryMB": 64, "command": "cat code/data"}
    job = {"jobName": "coded", "image": "python:3", "codeDir": "hdfs://hdfs-name-node-address:9000/test/code"}
    (cluster.project / "job.json").write_text(guide.fill(json.dumps(job | {"taskRoles": [role]})))
    assert guide("pai job.submit job.json --follow") == ["of the guide\n"]


@pytest.mark.root  # /dev/fuse may be root's
@needs("fusermount3")
def test_it_is_mounted(guide, cluster):
    guide("opai storage upload file-data-to-write hdfs://hdfs-name-node-address:9000/test/test_file")
    guide(MOUNT)
    assert (cluster.project / "mounted").read_text() == "of the guide\n"
