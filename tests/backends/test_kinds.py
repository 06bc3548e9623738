"""The table of kinds of clusters."""

import pytest

from openpai_tasks.backends import kinds
from openpai_tasks.errors import ConfigError
from openpai_tasks.settings.registry import DEFAULT_KIND, Cluster, dump, parse, registry_path


def test_every_kind_of_cluster_loads_its_driver():
    for type, kind in kinds.KINDS.items():
        driver = kinds.driver(type)
        assert kind.label and all(callable(getattr(driver, verb)) for verb in ("connect", "sign_in", "learn"))
    assert DEFAULT_KIND in kinds.KINDS


def test_an_unknown_type_is_an_error_that_names_the_known_ones():
    with pytest.raises(
        ConfigError, match=r"type 'k8s' are not supported \(known: openpai, paddlecloud, slurm\)"
    ):
        kinds.driver("k8s")


@pytest.mark.parametrize("kind", [DEFAULT_KIND, "other"])
def test_kind_is_written_to_the_registry_unless_it_is_the_default(kind):
    text = dump([Cluster("lab", "https://pai.example.org", kind=kind)])
    assert parse(text, registry_path())[0][0].kind == kind
    assert ("type:" in text) == (kind != DEFAULT_KIND)
