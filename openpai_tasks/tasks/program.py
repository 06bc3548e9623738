"""The program `pai`: our tasks, with a project's tasks.py and invoke.yaml if there are any."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import machinery
from importlib.machinery import FileFinder, ModuleSpec
from importlib.util import cache_from_source, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from invoke.collection import Collection
from invoke.exceptions import CollectionNotFound, Exit
from invoke.loader import FilesystemLoader
from invoke.program import Program

from openpai_tasks import __version__, compat, exits
from openpai_tasks.errors import ConfigError
from openpai_tasks.settings import ownership, project, trust
from openpai_tasks.settings.home import home
from openpai_tasks.tasks import COLLECTIONS, Namespace, namespace
from openpai_tasks.tasks.framework import terminal
from openpai_tasks.tasks.framework.invoke_patches import apply_verbosity, patch_invoke
from openpai_tasks.tasks.framework.parser import Parser
from openpai_tasks.tasks.pai import help_pages
from openpai_tasks.tasks.pai.flat_names import CLASSIC, SPACED
from openpai_tasks.text.hints import command

HELP, INVOKE = "help", "invoke"
LOADERS = (
    (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
    (machinery.SourceFileLoader, machinery.SOURCE_SUFFIXES),
    (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES),
)


class UnsafeTasksFile(CollectionNotFound):
    """Raised for a tasks.py that another user could have written; ``reason`` says why."""

    def __init__(self, name: str, start: str, reason: str) -> None:
        super().__init__(name, start)
        self.reason = reason


class UnsafeModule(ConfigError, ModuleNotFoundError):
    """Raised for a module next to a tasks.py that another user could have written."""


class ProjectFinder(FileFinder):
    """Finds the modules in a project that no other user could have written, at the moment of their import."""

    @classmethod
    def path_hook_below(cls, folder: Path) -> Callable[[str], ProjectFinder]:
        """Return a path hook for the folder and its packages, but not for a virtual environment in it."""

        def hook(path: str) -> ProjectFinder:
            place, installed = Path(path), [Path(entry) for entry in sys.path if entry != str(folder)]
            if not place.is_relative_to(folder) or any(map(place.is_relative_to, installed)):
                raise ImportError(f"not a package in {folder}", path=path)
            return cls(path, *LOADERS)

        return hook

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = super().find_spec(fullname, target)
        if spec is None:
            return None
        files = (spec.origin, spec.cached, *(spec.submodule_search_locations or ()))
        problem = ownership.problem(*(file for file in files if file))
        if problem:
            raise UnsafeModule(f"module {fullname!r} is not loaded: {problem}", name=fullname)
        return spec


class TasksLoader(FilesystemLoader):
    """Finds the nearest tasks.py for Invoke; other programs, such as Celery, use that name too."""

    def load(self, name: str | None = None) -> tuple[ModuleType, str]:
        try:
            return super().load(name)
        except UnsafeModule as err:
            raise UnsafeTasksFile(name or "tasks", self.start, f"the tasks are not loaded: {err}") from err

    def find(self, name: str) -> ModuleSpec | None:
        for folder in project.upwards(Path(self.start)):
            if file := project.tasks_module(folder, name):
                is_package = file.parent != folder
                problem = ownership.problem(file, cache_from_source(file))
                problem = problem or (ownership.tree_problem(file.parent) if is_package else "")
                if problem:
                    raise UnsafeTasksFile(name, self.start, f"{file} is not loaded: {problem}")
                self._add_to_path(file.parent)
                places = [str(file.parent)] if is_package else None
                return spec_from_file_location(name, file, submodule_search_locations=places)
        raise CollectionNotFound(name=name, start=self.start)

    def _add_to_path(self, folder: Path) -> None:
        """Let the tasks import what is next to them; unlike in Invoke, installed packages come first."""
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
            sys.path_hooks.insert(0, ProjectFinder.path_hook_below(folder))
            sys.path_importer_cache.pop(str(folder), None)


class PaiProgram(Program):
    """Invoke's program, with our tasks added to a project's, and the classic commands."""

    classic = CLASSIC
    spaced = SPACED
    shell = ""

    def run(self, argv: list[str] | None = None, exit: bool = True) -> None:
        """Run like Invoke's program, but exit with 130 on Ctrl-C."""
        try:
            super().run(argv, exit)
        except SystemExit as end:
            if isinstance(end.__context__, KeyboardInterrupt):  # for which Invoke has 1
                sys.exit(exits.INTERRUPTED)
            raise

    def parse_core(self, argv: list[str] | None) -> None:
        super().parse_core(argv)
        apply_verbosity(self)
        ownership.allow_bytecode()

    def parse_core_args(self) -> None:
        """Parse Invoke's own flags with our parser; keep a completion script until the tasks are known."""
        self.core = Parser(self.initial_context).parse_argv(self.argv[1:])
        flag = self.args["print-completion-script"]
        self.shell = flag.value
        flag.set_value("", cast=False)
        if not self.args.debug.value and not self.args.complete.value:
            self._find_debug_file()

    def _find_debug_file(self) -> None:
        """Turn on -d if there is a file debug_enable in ~/.openpai, or in that of a trusted project."""
        own, found = home() / trust.DEBUG_FILE, trust.debug_claims(Path.cwd())
        if own.is_file() or (found and not trust.untrusted(found)):
            file = own if own.is_file() else found[0].file
            terminal.say(f"debug output is on because of {file}; remove the file to turn it off")
            self.args.debug.set_value(True, cast=False)
        elif found:
            hint = f"`{command('config.trust')}` trusts it"
            terminal.say(f"{found[0].file} is ignored: the folder is not trusted; {hint}")

    def load_collection(self) -> None:
        """Load the project's tasks on top of ours; its invoke.yaml counts even without a tasks.py."""
        start = self.args["search-root"].value
        loader = self.loader_class(config=self.config, start=start)  # type: ignore[call-arg]
        try:
            module, folder = loader.load(self.args.collection.value)
        except CollectionNotFound as err:
            reason = getattr(err, "reason", "")
            if self.args.collection.value:
                missing = f"no tasks file {err.name!r} in {err.start} or above"
                raise terminal.ending(exits.BAD_INPUT, f"error: {reason or missing}") from err
            self._warn(reason)
            self.collection = namespace()
            self._load_project(project.settings_folder(Path(start or os.getcwd())))
            self._keep_our_section()
            return
        self._load_project(Path(folder))
        self.collection = add_to_project(module, folder, self.config.tasks.auto_dash_names)

    def _load_project(self, folder: Path | None) -> None:
        """Load a project's settings, unless another user could have written them."""
        problem = project.settings_problem(folder) if folder else ""
        self._warn(problem)
        self.config.set_project_location(str(folder) if folder and not problem else None)
        self.config.load_project()

    def _keep_our_section(self) -> None:
        """Drop Invoke's own settings, which name programs to run, of a project without a tasks.py."""
        values = compat.config_level(self.config, "project")
        ours = {key: value for key, value in values.items() if key == "openpai"}
        compat.set_config_level(self.config, "project", ours)

    def _warn(self, reason: str) -> None:
        if reason and not self.args.complete.value:
            terminal.say(f"warning: {reason}")

    def parse_cleanup(self) -> None:
        if self.shell:
            from openpai_tasks.tasks.framework.command_table import completion_script

            terminal.exact(completion_script(self, self.shell) + "\n")
            raise Exit
        super().parse_cleanup()

    def parse_tasks(self) -> None:
        """Read `help COMMAND` as `--help COMMAND`, unless the project has a task of that name."""
        words = self.core.unparsed
        if words[:1] == [HELP] and HELP not in self.collection.task_names:
            topic = [word for word in words[1:] if not word.startswith("-") and word != HELP]
            self.core.unparsed = []
            old = " ".join(topic[:2])
            name = old if old in SPACED else ".".join(topic)  # `job sub` is `job.sub`
            is_collection = name in self.collection.collections
            if name not in self.collection.task_names and self._print_topic(name) and not is_collection:
                raise Exit
            shown = self.args.list if is_collection else self.args.help
            shown.set_value(name or None, cast=False)
        super().parse_tasks()

    def _print_topic(self, name: str) -> bool:
        """Print the page of a topic; return whether it exists."""
        if name == INVOKE:
            super().print_help()
            return True
        page = help_pages.topic_page(self.binary, name, self._columns)
        if page:
            terminal.put(f"{page}\n")
        return bool(page)

    def no_tasks_given(self) -> None:
        self.print_help()
        raise Exit

    def print_help(self) -> None:
        known: Collection | None = getattr(self, "collection", None)  # loaded after `--help` is seen
        own: list[str] = []
        if known is not None:
            own += [name for name in known.tasks if name not in self.classic]
            own += [f"{name}.*" for name in known.collections if name not in COLLECTIONS]
        terminal.put(help_pages.front_page(self.binary, self._columns, own))

    @property
    def _columns(self) -> int:
        return terminal.size(sys.stdout).columns

    def list_flat(self) -> None:
        """List the tasks in groups, those of every day first."""
        if self.list_depth:
            return super().list_flat()
        for title, pairs in help_pages.groups(self.scoped_collection, self.list_root).items():
            terminal.put(f"{title}:\n")
            self.print_columns(pairs)
        terminal.put(help_pages.other_names(self.scoped_collection, self.list_root, self._columns))


def add_to_project(module: Any, folder: str, auto_dash_names: bool) -> Collection:
    """Return a project's namespace, with our collections added unless it includes them itself."""
    theirs = Collection.from_module(module, loaded_from=folder, auto_dash_names=auto_dash_names)
    if any(isinstance(getattr(module, name, None), Namespace) for name in ("ns", "namespace")):
        return theirs
    for name, collection in namespace().collections.items():
        if name not in theirs.collections and name not in theirs.tasks:
            theirs.add_collection(collection, name)
    return theirs


def main() -> None:
    """Run the console script."""
    patch_invoke()
    sys.excepthook = terminal.show_uncaught
    program = PaiProgram(
        version=__version__, name="pai", binary="pai", binary_names=["pai", "opai"], loader_class=TasksLoader
    )
    program.run()
