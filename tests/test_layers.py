"""Imports point left: a module may import only from the layers named beside it, lazily or not."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "openpai_tasks"
BASE = {"errors", "exchange", "home", "key_pairs", "lazy", "nap", "plain_text", "retry", "times"}
CHECKS = {"ownership", "setting_layers", "setting_types", "trust"}
VALUES = BASE | CHECKS | {"protocol", "config", "registry", "credentials", "web_address"}
MAY_IMPORT = {
    "__init__": {"client", "data", "errors", "magics", "protocol", "tasks"},
    "errors": {"plain_text"},
    "exchange": set(),
    "plain_text": set(),
    "lazy": set(),
    "nap": set(),
    "retry": set(),
    "times": {"errors"},
    "web_address": set(),
    "completion": set(),
    "render": {"errors", "plain_text"},
    "render_html": {"plain_text", "render"},
    "home": {"errors"},
    "key_pairs": {"errors", "home"},
    "protocol": BASE,
    "ownership": set(),
    "setting_types": set(),
    "setting_layers": {"errors", "home", "ownership", "trust"},
    "trust": BASE | {"ownership"},
    "config": BASE | CHECKS,
    "credentials": VALUES,
    "registry": VALUES,
    "client": VALUES,
    "storage": VALUES | {"client"},
    "sdk": VALUES | {"client", "storage"},
    "data": VALUES | {"client", "storage", "sdk"},
    "tasks": VALUES | {"client", "storage", "sdk", "render", "render_html", "completion"},
    "magics": VALUES | {"client", "storage", "sdk", "render", "render_html"},
    "program": {"__init__", "__main__", "errors", "lazy", "ownership", "tasks"},
    "__main__": {"program"},
    "server": BASE | {"protocol"},
}
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


def layer(dotted: str) -> str:
    """``openpai_tasks.sdk.jobs`` is of the layer ``sdk``."""
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imported(tree: ast.AST) -> set[str]:
    """The layers a module names in imports and in lazy("...")."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "openpai_tasks":
            names += [f"openpai_tasks.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "lazy":
            names.append(node.args[0].value)
    ours = {layer(name) for name in names if name.split(".")[0] == "openpai_tasks"}
    return {"__init__" if name.startswith("__") else name for name in ours}


def test_imports_point_left():
    wrong = {}
    for path in MODULES:
        own = path.relative_to(PACKAGE).with_suffix("").parts[0]
        allowed = MAY_IMPORT[own] | {own, "__init__"}
        wrong[dotted(path)] = imported(ast.parse(path.read_text())) - allowed
    assert not {name: layers for name, layers in wrong.items() if layers}


def prints(path: Path) -> bool:
    called = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    return any(isinstance(func, ast.Name) and func.id == "print" for func in called)


def test_only_tasks_and_the_programs_print():
    may = ("tasks", "program.py", "server")
    others = [path for path in MODULES if path.relative_to(PACKAGE).parts[0] not in may]
    assert not [dotted(path) for path in others if prints(path)]


PRINTERS = {  # and what each of them may use
    "tasks/_output.py": {
        "print",
        "Exit",
        "stream.write",
        "stream.flush",
        "sys.stderr.write",
        "stream.buffer",
    },
    "tasks/_asking.py": {"getpass.getpass"},
    "magics/commands.py": {"stream.write"},  # passes on what a command has printed
    "magics/this_notebook.py": {"sys.stderr.write"},
}


def written(node: ast.AST) -> str | None:
    """The way to the terminal that a piece of code takes, if it takes one."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        is_exit = node.func.id == "Exit" and bool(node.args)  # with a message, which Invoke prints
        return node.func.id if is_exit or node.func.id in ("print", "input") else None
    if not isinstance(node, ast.Attribute):
        return None
    name = ast.unparse(node)
    streams = ("stdout", "stderr", "stream", "_stream")
    is_stream = node.attr in ("write", "writelines", "buffer") and name.split(".")[-2] in streams
    return name if is_stream or name in ("getpass.getpass", "os.write") else None


def test_only_the_module_that_filters_writes_to_a_terminal():
    wrong = {}
    for path in MODULES:
        name = str(path.relative_to(PACKAGE))
        if path.relative_to(PACKAGE).parts[0] in ("tasks", "program.py", "magics", "completion"):
            found = {written(node) for node in ast.walk(ast.parse(path.read_text()))}
            wrong[name] = found - {None} - PRINTERS.get(name, set())
    assert not {name: ways for name, ways in wrong.items() if ways}


def needed(path: Path) -> set[str]:
    """The modules of ours that are loaded when the module itself is."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def test_no_module_needs_itself():
    names = {dotted(path): path for path in MODULES}
    packages = {dotted(path) for path in MODULES if path.name == "__init__.py"}
    graph = {name: (needed(path) & names.keys()) - packages for name, path in names.items()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(names)  # a cycle is an error there
