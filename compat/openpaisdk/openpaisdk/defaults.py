"""The settings, under the names of the old SDK's defaults."""

from openpai_tasks.api.connection import settings_here
from openpai_tasks.settings import config, layers


def get_defaults():
    """Return all settings by name, such as ``cluster-alias`` and ``workspace``."""
    found = settings_here()
    return {variable.name: found.value(variable) for variable in config.all_variables()}


def update_default(key, value=None, is_global=False, to_delete=False):
    """Set a default of this project, or of all your projects; or delete it."""
    name = config.find(key).name
    values = {} if to_delete else {name: config.find(key).read(value, "update_default")}
    config.change_defaults(layers.defaults_path(is_global), values, [name] if to_delete else [])


def get_install_uri(ver=None):
    """Return what jobs install of the SDK: nothing."""
    return ""
