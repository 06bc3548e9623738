"""States that select jobs of the list."""

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol import states
from openpai_tasks.sdk.jobs.lookup import parse_states


@pytest.mark.parametrize("state", states.ALL)
def test_every_state_is_accepted_in_any_case(state):
    assert parse_states(state) == parse_states(state.lower()) == parse_states(state.title()) == state


@pytest.mark.parametrize("text", ["running,waiting", " RUNNING , waiting,", ",running,WAITING"])
def test_several_states_are_separated_by_commas(text):
    assert parse_states(text) == "RUNNING,WAITING"


def test_an_unknown_state_names_the_known_ones():
    with pytest.raises(ConfigError) as caught:
        parse_states("RUNNING,nonsense")
    known = "WAITING, RUNNING, STOPPING, RETRYING, SUCCEEDED, FAILED, STOPPED, UNKNOWN"
    assert str(caught.value) == f"--state: no state named 'nonsense' (known: {known})"


def test_a_misspelt_state_gets_a_suggestion():
    with pytest.raises(ConfigError, match=r"no state named 'runing' .*, did you mean 'RUNNING'"):
        parse_states("runing")
