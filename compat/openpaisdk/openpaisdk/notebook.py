"""The current notebook, and settings for it."""

import logging
import os

LOG = logging.getLogger("openpaisdk")


def get_notebook_path():
    """Return the file of the current notebook."""
    from openpai_tasks.magics.this_notebook import this_notebook

    return str(this_notebook(unsaved=True).path)


def parse_notebook_path():
    """Return the name, the folder and the extension of the current notebook's file."""
    folder, file = os.path.split(get_notebook_path())
    name, extension = os.path.splitext(file)
    return name, folder, extension


def submit_notebook(image=None, nb_file=None, job_name=None, pip_requirements=None, **options):
    """Submit the current notebook and return the address of the job's page; do nothing inside a job."""
    from openpaisdk.core import in_job_container

    if in_job_container():
        return None
    import openpai_tasks
    from openpaisdk.job import Job

    packages = [word for word in pip_requirements or () if word] or None
    flags = {"image": image, "job_name": job_name, "pip_installs": packages, **options}
    job = openpai_tasks.submit_this_notebook(nb_file, **flags)
    return Job(job.name, options.get("cluster_alias")).url


_set_variables = set()  # of the environment


class NotebookConfiguration:
    """Settings for the jobs that this notebook submits, above those of its project; ignored inside a job."""

    @classmethod
    def set(cls, key, value):
        """Set a setting; values of lists, such as ``sources``, are added."""
        from openpaisdk.core import in_job_container

        if in_job_container():
            return
        from openpai_tasks.errors import ConfigError
        from openpai_tasks.settings import config, layers

        if key != "mem" and key in config.OLD_NAMES:
            LOG.warning("%s is not needed here, and was not set: %s", key, config.OLD_NAMES[key])
            return
        variable, value = _setting(key, value)
        words = [str(value)]
        if isinstance(value, tuple):
            words = list(dict.fromkeys((*cls.get(key), *value)))
            if wrong := [word for word in words if "," in word]:
                raise ConfigError(f"{key} cannot have a value with a comma here: {wrong[0]!r}")
        name = layers.PREFIX + variable.field.upper().replace(".", "_")
        os.environ[name] = ",".join(words)
        _set_variables.add(name)

    @staticmethod
    def get(*args):
        """Return a setting, several as a list, or all of them by name."""
        from openpaisdk.core import in_job_container

        if in_job_container():
            return None if len(args) == 1 else [None for _ in args] or {}
        from openpaisdk.defaults import get_defaults

        found = get_defaults()
        values = [found[_setting(key)[0].name] for key in args]
        return values if len(values) > 1 else values[0] if values else found

    @staticmethod
    def reset():
        """Undo what was set."""
        while _set_variables:
            os.environ.pop(_set_variables.pop(), None)

    @staticmethod
    def print_supported_items():
        """Print the settings, with what they are without being set."""
        from openpai_tasks import render
        from openpai_tasks.settings import config

        rows = [
            {"name": one.name, "default": one.default, "help": one.about} for one in config.all_variables()
        ]
        print(render.format_values(rows, ("name", "default", "help")))


def _setting(key, value=None):
    """Return the setting of a name, and the value as it is set there; ``mem`` is a size, such as 8g."""
    from openpai_tasks import sdk
    from openpai_tasks.settings import config

    if key == "mem":
        key, value = "memoryMB", value and sdk.amounts.read(key, sdk.amounts.megabytes, value)
    variable = config.find(key)
    return variable, value if value is None else variable.read(value, "NotebookConfiguration")
