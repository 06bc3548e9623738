"""Imports go one way: a module may import only from the layers listed for it, lazily or not."""

import ast
import functools
import importlib
import re
from collections.abc import Mapping, Set
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "openpai_tasks"
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))
STUBS = sorted(PACKAGE.rglob("__init__.pyi"))

BASE = {"causes", "compat", "errors", "exits", "files", "hooks", "net", "text"}
VALUES = BASE | {"protocol", "settings"}
BACKENDS = {"backends.base", "backends.http", "backends.listing"}
SEAM = {"backends.base", "backends.kinds"}
STORE = {
    "errors",
    "files.removal",
    "text.hints",
    "storage.store",
    "storage.parts",
    "storage.retry",
    "storage.kinds",
}
COPYING = STORE | {"storage.crc", "storage.location", "storage.patterns", "storage.local.store"}
CLIENTS = VALUES | SEAM | {"storage"}
TUNNEL = {"tunnel"}
LOOPBACK = {"loopback.lock", "loopback.process"}
CLUSTERS = (
    CLIENTS
    | LOOPBACK
    | TUNNEL
    | {"sdk.known_names", "sdk.parallel", "sdk.amounts", "sdk.git", "sdk.ssh", "sdk.clusters"}
)
FILES = CLUSTERS | {"sdk.files"}
JOBS = FILES | {"sdk.jobs"}
COMMANDS = VALUES | SEAM | {"storage", "sdk", "render", "completion"}
SERVER = BASE | {"protocol", "settings.engines", "settings.home", "settings.keeping", "settings.key_pairs"}
SERVER |= {"server.fields", "server.job_errors", "server.api_errors", "server.resources", "server.storages"}
ENGINES = {"server.engines", "server.ssh", "server.state", "server.variables"}
API = {"server.accounts", "server.api", *ENGINES}

EVERYWHERE = {"lazy_dataclass", "lazy_package"}
MAY_IMPORT = {
    "__init__": {"magics"},  # its lazy names are those of the stub
    "__main__": {"compat", "exits", "files.shortages", "tasks"},
    "errors": {"exits", "text.hints", "text.plain"},
    "causes": {"text.plain"},
    "compat": set(),
    "exits": set(),
    "lazy_dataclass": set(),
    "lazy_package": set(),
    "files": {"errors"},
    "runtime": set(),
    "text": {"errors"},
    "text.hints": set(),
    "text.plain": set(),
    "hooks": {"errors", "net", "text"},
    "net": {"errors"},
    "protocol": {"errors"},
    "protocol.yaml": {"protocol.problems"},
    "protocol.document": {
        "errors",
        "protocol.fields",
        "protocol.problems",
        "protocol.states",
        "protocol.routes",
        "protocol.yaml",
    },
    "protocol.legacy": {"errors", "protocol.problems", "protocol.document", "protocol.yaml"},
    "settings": BASE | {"protocol"},
    "tunnel": VALUES,
    "backends": set(),
    "backends.base": {"errors", "net", "protocol", "settings", "text.hints"},
    "backends.kinds": {"errors", "backends", "settings"},
    "backends.listing": {"protocol"},
    "backends.http": VALUES | {"backends.base"},
    "backends.openpai": VALUES | BACKENDS,
    "backends.ssh": VALUES | TUNNEL | {"backends.base", "backends.http", "backends.openpai"},
    "backends.paddlecloud": VALUES | BACKENDS,
    "backends.paddlecloud.pfs": STORE | {"net", "storage.hosts", "storage.objects.md5", "storage.copying"},
    "storage": BASE,
    "storage.store": {"errors"},
    "storage.crc": {"storage.store"},
    "storage.parts": {"storage.store"},
    "storage.protobuf": set(),
    "files.tar_headers": {"errors"},
    "storage.retry": {"errors", "net"},
    "storage.kinds": {"errors", "protocol.document", "settings.plugins", "storage.store"},
    "storage.local": STORE | {"settings.home"},
    "storage.hdfs": STORE | {"net", "protocol", "storage.crc", "storage.protobuf"},
    "storage.smb": STORE | {"net", "settings.credentials", "storage.hosts", "storage.local.mounted"},
    "storage.objects": STORE | {"net", "protocol", "storage.hosts"},
    "storage.objects.s3": STORE | {"net", "protocol", "storage.objects"},
    "storage.objects.azure": STORE | {"net", "storage.objects"},
    "storage.sftp": STORE | TUNNEL | {"net"},
    "storage.location": STORE | {"storage.local.store"},
    "storage.patterns": STORE | {"storage.location", "text.wildcards"},
    "storage.copying": COPYING | {"compat", "exits", "settings.home", "text"},
    "storage.job_files": STORE
    | {"protocol.document", "files.regular", "settings.trust", "text.plurals", "text.wildcards"}
    | {"storage.copying.transfer", "storage.local.store", "files.tar_headers"},
    "storage.packing": COPYING | {"storage.copying", "storage.protobuf", "files.tar_headers"},
    "storage.fsspec": COPYING | {"storage.copying"},
    "sdk": CLIENTS | {"sdk.files", "sdk.ssh"},
    "sdk.ssh": CLIENTS | TUNNEL,
    "sdk.clusters": CLUSTERS,
    "sdk.files": FILES,
    "sdk.jobs": JOBS | {"sdk.notebooks.sessions", "sdk.logs.json_lines"},
    "sdk.logs": JOBS,
    "sdk.diagnosis": JOBS | {"sdk.logs", "sdk.containers.keepalive"},
    "sdk.templates": JOBS,
    "sdk.sweeps": JOBS | {"sdk.logs"},
    "sdk.containers": JOBS | {"sdk.diagnosis", "sdk.logs"},
    "sdk.usage_report": CLUSTERS | {"sdk.sweeps.records"},
    "sdk.tensorboard": JOBS | {"sdk.sweeps"},
    "sdk.doctor": FILES | {"sdk.images.programs"},
    "sdk.images": VALUES,
    "sdk.payloads": set(),
    "sdk.notebooks": JOBS | {"sdk.containers", "sdk.diagnosis", "sdk.logs", "sdk.payloads"},
    "api": VALUES | {"backends.base", "render", "sdk", "storage"},
    "render": {"errors", "text.durations", "text.plain", "text.plurals", "text.wrapping"},
    "completion": set(),
    "tasks": COMMANDS | {"paddlecloud"},
    "tasks.framework": COMMANDS,
    "tasks.views": COMMANDS | {"backends.paddlecloud", "paddlecloud", "portal.starting", "tasks.framework"},
    "paddlecloud": JOBS | {"backends.paddlecloud", "exits", "sdk.diagnosis", "sdk.logs", "tasks"},
    "magics": COMMANDS - {"completion"} | {"api.options"},
    "loopback": {"compat", "errors", "files.shortages", "net", "settings.home"},
    "portal": VALUES | SEAM | {"loopback", "storage", "sdk", "render"},
    "portal.starting": {"errors", "text.hints", *LOOPBACK, "settings.home"},
    "server": SERVER | {"server", "loopback"},
    "server.deliveries": SERVER | {"portal.starting", "server.state", "server.variables"},
    "server.state": SERVER,
    "server.accounts": SERVER | {"server.state"},
    "server.ssh": SERVER | {"server.state"},
    "server.engines": SERVER | {"server.ssh", "server.state", "server.variables"},
    "server.scheduling": SERVER | ENGINES,
    "server.api": SERVER | API | {"loopback.callers", "loopback.guesses", "loopback.web"},
    "server.api.rates": SERVER | {"loopback.web"},
    "server.api.formats": SERVER | ENGINES | {"server.api.rates"},
    "server.api.openapi": SERVER | API | {"loopback.web"},
    "server.api.handlers": SERVER | API | {"portal.starting"},
    "server.paddlecloud": SERVER | API | {"loopback.callers", "loopback.web"},
    "server.paddlecloud.pfs": SERVER | API | {"server.paddlecloud.places"},
}
"""What each package may import: whole packages, or single modules."""


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """Return those that import something, or that may write to a terminal."""
    wanted = (ast.Import, ast.ImportFrom, ast.Call, ast.Attribute)
    return [node for node in ast.walk(parsed(path)) if isinstance(node, wanted)]


def room(name: str) -> str:
    """Return the longest listed prefix of a module: ``sdk.jobs.lookup`` belongs to ``sdk.jobs``."""
    parts = name.split(".")
    prefixes = (".".join(parts[:size]) for size in range(len(parts), 0, -1))
    return next(prefix for prefix in prefixes if prefix in MAY_IMPORT)


def imported(path: Path) -> set[str]:
    """Return our modules that a module imports, without the name of the package."""
    names: list[str] = []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    ours = {name.removeprefix("openpai_tasks.") for name in names if name.startswith("openpai_tasks.")}
    return {name for name in ours if not name.startswith("__")}


def is_inside(name: str, place: str) -> bool:
    return name == place or name.startswith(f"{place}.")


def own_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def test_imports_point_one_way():
    """A package may import itself, its sub-packages, and what the table lists; lazily or not."""
    found = []
    for path in MODULES:
        own = room(own_name(path))
        allowed = MAY_IMPORT[own] | {own} | EVERYWHERE
        for name in sorted(imported(path)):
            if not any(is_inside(name, place) for place in allowed):
                found.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert not found, "\n".join(found)


FEW = 20


HTTP = ("urllib.request", "http.client", "requests", "httpx", "aiohttp", "urllib3")
OTHER_CLIENTS = {
    "runtime.py": {"urllib.request"},  # travels with jobs, and has only the standard library there
    "sdk/payloads/notebook_server.py": {"urllib.request"},  # the same
    # PyHDFS prepares its requests with it; net sends them
    "storage/hdfs/web/pyhdfs_client.py": {
        *("requests.PreparedRequest", "requests.Response", "requests.Session", "requests.adapters"),
    },
    "storage/objects/azure/container.py": {"aiohttp"},  # errors of Azure's library
}


def test_http_requests_are_sent_by_net_alone():
    """It limits time and size, and follows no redirect by itself."""
    found = {}
    for path in MODULES:
        names = {alias.name for node in nodes(path) if isinstance(node, ast.Import) for alias in node.names}
        froms = [node for node in nodes(path) if isinstance(node, ast.ImportFrom)]
        names |= {f"{node.module}.{alias.name}" for node in froms for alias in node.names}
        places = {
            ".".join(name.split(".")[:2]) for name in names if any(is_inside(name, one) for one in HTTP)
        }
        if places and path.parent.name != "net":
            found[str(path.relative_to(PACKAGE))] = places
    assert found == OTHER_CLIENTS


def test_no_folder_is_crowded():
    folders = {path.parent for path in MODULES}
    assert not [folder for folder in folders if len(list(folder.glob("[!_]*.py"))) > FEW]


def test_every_package_has_a_docstring():
    assert not [
        path for path in MODULES if path.name == "__init__.py" and not ast.get_docstring(parsed(path))
    ]


def test_only_tasks_and_the_server_print():
    silent = [path for path in MODULES if path.relative_to(PACKAGE).parts[0] not in ("tasks", "server")]
    silent = [path for path in silent if path.parent.name != "payloads"]
    assert not [path for path in silent if "print" in terminal_writes(path)]


PRINTERS = {  # what each of these modules may use
    "tasks/framework/terminal.py": {
        "print",
        "Exit",
        "stream.write",
        "stream.flush",
        "self._stream.write",
        "sys.stderr.write",
        "stream.buffer",
    },
    "tasks/framework/prompts.py": {"getpass.getpass"},
    "tasks/framework/invoke_patches.py": {"print"},  # lists of tasks, as Invoke prints them
    "magics/commands.py": {"stream.write"},  # forwards what a command has printed
    "magics/this_notebook.py": {"sys.stderr.write"},
}


def terminal_write(node: ast.AST) -> str | None:
    """Return the call or attribute by which the node writes to the terminal, if any."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        is_exit = node.func.id == "Exit" and bool(node.args)  # with a message, which Invoke prints
        return node.func.id if is_exit or node.func.id in ("print", "input") else None
    if not isinstance(node, ast.Attribute) or node.attr not in ("write", "writelines", "buffer", "getpass"):
        return None
    name = ast.unparse(node)
    streams = ("stdout", "stderr", "stream", "_stream")
    is_stream = node.attr in ("write", "writelines", "buffer") and name.split(".")[-2] in streams
    return name if is_stream or name in ("getpass.getpass", "os.write") else None


def terminal_writes(path: Path) -> set[str]:
    return {way for node in nodes(path) if (way := terminal_write(node))}


def test_only_filtering_modules_write_to_the_terminal():
    found = []
    for path in MODULES:
        name = path.relative_to(PACKAGE)
        if name.parts[0] in ("tasks", "magics", "completion"):
            found += [f"{name}: {way}" for way in terminal_writes(path) - PRINTERS.get(str(name), set())]
    assert not found


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def stub(package: str) -> dict[str, str]:
    """Return the modules that a lazy package takes its names from."""
    path = (PACKAGE.parent / package.replace(".", "/")) / "__init__.pyi"
    found = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom)]
    return {alias.name: f"{package}.{node.module or alias.name}" for node in found for alias in node.names}


def absolute(node: ast.ImportFrom, path: Path) -> str:
    """Return the name of the module that an import is from, also of a relative one."""
    folder = path.parent.relative_to(PACKAGE.parent).parts
    parents = folder[: len(folder) + 1 - node.level] if node.level else ()
    return ".".join([*parents, *([node.module] if node.module else [])])


def edges(path: Path, names: Set[str], stubs: Mapping[str, Mapping[str, str]]) -> set[str]:
    """Return our modules that a module imports anywhere: at the top, in functions, for type checkers."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = absolute(node, path)
            for name in (alias.name for alias in node.names):
                found |= {module, f"{module}.{name}", stubs.get(module, {}).get(name, module)}
    return (found & names) - {dotted(path)}


def test_modules_have_no_import_cycles():
    """Imports in functions and those for type checkers count, too."""
    names = {dotted(path): path for path in MODULES}
    packages = {dotted(path) for path in MODULES if path.name == "__init__.py"}
    stubs = {dotted(path.with_suffix(".py")): stub(dotted(path.with_suffix(".py"))) for path in STUBS}
    graph = {name: edges(path, names.keys(), stubs) - packages for name, path in names.items()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(names)  # raises on a cycle


def test_lazy_packages_offer_what_their_stubs_declare():
    """mypy trusts the stubs, so every name in them must be loadable."""
    for path in STUBS:
        package = importlib.import_module(dotted(path.with_suffix(".py")))
        declared = {
            alias.name
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        assert declared == set(package.__all__), path
        assert all(hasattr(package, name) for name in declared)


def test_programs_that_the_client_starts_get_a_chosen_environment():
    """They must not inherit the variables with logins; see `settings.credentials.hidden_environment`."""
    elsewhere = ("server.", "loopback.", "sdk.payloads.")  # where these variables are not set
    starts = [
        (own_name(path), {keyword.arg for keyword in node.keywords})
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in STARTS
    ]
    assert len(starts) > 10
    assert [name for name, given in starts if "env" not in given and not name.startswith(elsewhere)] == []


STARTS = {*(f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "Popen")), "c.run"}


def test_the_embedded_cluster_is_recognised_by_what_it_allows_not_by_its_name():
    rooms = ("api", "magics", "portal", "render", "sdk", "tasks", "backends")
    names = re.compile(r"[=!]= (?:\w+\.)*LOCAL\b|\bLOCAL [=!]=|[=!]= ['\"]local['\"]")
    found = [
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in MODULES
        if path.relative_to(PACKAGE).parts[0] in rooms
        for line in path.read_text().splitlines()
        if names.search(line)
    ]
    assert not found, "\n".join(found)


def test_an_engine_is_named_only_in_its_folder_and_its_row():
    own = ("server/engines/", "settings/engines.py")
    kinds = ("backends/kinds.py", "runtime.py")  # a kind of cluster, and a platform, with the same name
    found = [
        f"{name}: {line.strip()}"
        for name, path in ((str(path.relative_to(PACKAGE)), path) for path in MODULES)
        if not name.startswith(own) and name not in kinds
        for line in path.read_text().splitlines()
        if re.search(r"[\"'](?:slurm|podman|docker)[\"']", line)
    ]
    assert not found, "\n".join(found)
