"""Documents without the shell that is generated around the user's own commands."""

import pytest

from openpai_tasks import protocol
from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol import JobRequest
from openpai_tasks.protocol.document.folding import fold, own_commands, unfold
from openpai_tasks.protocol.document.job_storage import HdfsFolder, MountedFolder

COMMAND = "python train.py --name 'a b' --tag '<%'\nls -l"
HOMES = [MountedFolder("home", "/mnt/home"), HdfsFolder(("http://h/webhdfs/v1/x",), "u")]


def document(home=None, **options):
    request = JobRequest(
        command=COMMAND,
        name="a",
        image="i",
        home=home,
        archive="ab" * 32 if home else "",
        pip_installs=("numpy",),
        environment={"LR": "0.1"},
        ssh_key="ssh-ed25519 key",
        **options,
    )
    return protocol.build_document(request)


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("seconds", [None, 3600])
@pytest.mark.parametrize("outputs", [(), ("model/*.pt",)])
def test_a_folded_document_has_the_own_command_and_unfolds_to_the_same(home, seconds, outputs):
    made = document(home, max_seconds=seconds, outputs=outputs)
    assert own_commands(made) == {"main": COMMAND}
    folded = fold(made)
    text = protocol.dump(folded)
    assert "pai_" not in text and "mkdir" not in text and len(text) < 1500
    assert "# openpai-tasks: python3 -m pip install numpy" in text and "export LR=0.1" in text
    assert ("# openpai-tasks: time limit of 3600 s" in text) == bool(seconds)
    assert unfold(folded, made) == made
    assert unfold(made, made) == made  # an edit may also contain everything


def test_edits_of_a_folded_document_keep_what_is_generated_around_them():
    made = document(HOMES[1], max_seconds=3600)
    folded = fold(made)
    role = folded["taskRoles"]["main"]
    role["commands"] = [role["commands"][0].replace("3600", "60").replace("ls -l", "date")]
    after = unfold(folded, made)
    assert own_commands(after) == {"main": COMMAND.replace("ls -l", "date")}
    assert "the time limit of 60 s was reached" in after["taskRoles"]["main"]["commands"][0]
    assert after["deployments"] == made["deployments"]


def test_the_comment_of_a_generated_step_cannot_be_changed():
    made = document(HOMES[0])
    folded = fold(made)
    steps = folded["deployments"][0]["taskRoles"]["main"]["preCommands"]
    steps[-1] = "# openpai-tasks: sources of another job"
    with pytest.raises(ProtocolError, match="can be removed, but not changed"):
        unfold(folded, made)


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"taskRoles": [1], "deployments": "x"},
        {"taskRoles": {"main": None}, "deployments": [{"taskRoles": 3}, 4]},
        {"taskRoles": {"main": {"commands": [1, None]}}, "deployments": [{"taskRoles": {"main": []}}]},
        {
            "taskRoles": {
                "main": {"commands": ["pai_script='a' 'b'\npai_options=$(set +o)\nexit code 124: x"]}
            }
        },
    ],
)
def test_documents_of_another_shape_stay_as_they_are(odd):
    assert fold(odd) == odd and unfold(odd, odd) == odd
    own_commands(odd)


def test_a_command_that_only_looks_limited_stays_as_it_is():
    end = "exit code 124: the time limit of 5 s was reached"
    odd = f"pai_script='unclosed\npai_options=$(set +o)\n$pai_script\n{end}"
    assert own_commands({"taskRoles": {"main": {"commands": [odd]}}}) == {"main": odd}
