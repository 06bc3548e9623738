"""The SSH service of a task in a container: the image's sshd, if any, started before the commands.

The keys are mounted where only the container's root can read them, and copied into the container, so that
nothing outside reads the files that it writes next to them.
"""

from __future__ import annotations

from pathlib import Path

from openpai_tasks.server.ssh import CRASH, FAILED, HOST, NOT_SERVED, READY, ROOT, SshLogin
from openpai_tasks.server.ssh.enter import RESTORE
from openpai_tasks.server.ssh.layout import (
    AUTHORIZED,
    CLIENT_CONFIG,
    HOST_KEY,
    client_config,
    write_keys,
)
from openpai_tasks.settings import home

BASE = "/usr/local/pai"
KEYS, SSH, SESSION = f"{BASE}/keys", f"{BASE}/ssh", f"{BASE}/runtime/session"
ENVIRONMENT = f"/{ROOT}/.ssh/environment"  # as in OpenPAI; commands add variables for sessions
SERVED = "SshReady"
"""The reason of the note with which a container reports that its sshd answers."""

_CONFIG = f"""\
ListenAddress {HOST}
Port {{port}}
HostKey {SSH}/{HOST_KEY}
AuthorizedKeysFile {SSH}/{AUTHORIZED}
AllowUsers {ROOT}
ForceCommand /bin/sh {SESSION}
AuthenticationMethods publickey
PasswordAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UseDNS no
PidFile none
AllowAgentForwarding no
X11Forwarding no
PermitTunnel no
PermitUserRC no
PrintMotd no
MaxSessions 200
"""
_SERVE = f"""\
fail() {{{{
  echo "$1" >{SSH}/{FAILED}
  echo "Warning {NOT_SERVED} there is no ssh service: $1" >>{{notes}}
  exit 0
}}}}
cp -R {KEYS} {SSH} && chmod 700 {SSH} && chmod 600 {SSH}/* || exit 0
export -p >{SSH}/exports
sshd=$(PATH=$PATH:/usr/sbin:/usr/local/sbin:/sbin command -v sshd) ||
  fail "the image has no sshd, add openssh-server to it"
mkdir -p /run/sshd && chmod 755 /run/sshd
mkdir -p /{ROOT}/.ssh && chmod 700 /{ROOT}/.ssh && : >>{ENVIRONMENT} && chmod 600 {ENVIRONMENT}
# An account without a password counts as locked, unless the field has another mark.
sed -i 's/^{ROOT}:!/{ROOT}:*/' /etc/shadow 2>/dev/null
for sftp in /usr/lib/openssh /usr/libexec/openssh /usr/libexec /usr/lib/ssh; do
  if [ -x $sftp/sftp-server ]; then echo "Subsystem sftp $sftp/sftp-server" >>{SSH}/sshd_config; break; fi
done
problem=$("$sshd" -f {SSH}/sshd_config 2>&1) || fail "sshd did not start: $(echo $problem)"
if [ -e {SSH}/{CLIENT_CONFIG} ]; then
  mkdir -p ~/.ssh && chmod 700 ~/.ssh
  sed '/^Match all/,$d' {SSH}/{CLIENT_CONFIG} >>~/.ssh/config && chmod 600 ~/.ssh/config
fi
echo "Normal {SERVED} ssh is served by the image's sshd: log in as {ROOT} at port {{port}}" >>{{notes}}
: >{SSH}/{READY}
"""
_SESSION = f"""\
[ ! -r {ENVIRONMENT} ] || while IFS= read -r line; do
  case ${{line%%=*}} in '' | [!A-Za-z_]* | *[!A-Za-z0-9_]*) ;; *) export "$line" ;; esac
done <{ENVIRONMENT}
cd "$work"
shell=$(command -v bash || echo /bin/sh)
set -- "$shell"
[ -z "${{SSH_ORIGINAL_COMMAND+x}}" ] || set -- "$shell" -c "$SSH_ORIGINAL_COMMAND"
for crash in {BASE}/io/{CRASH} {BASE}/{CRASH}; do
  [ ! -s "$crash" ] || exec "$shell" -c '{RESTORE}' "$crash" "$@"
done
exec "$@"
"""


def write_files(task_folder: Path, login: SshLogin) -> Path:
    """Write the folder that is mounted at KEYS, and return it."""
    folder = write_keys(task_folder, login)
    home.write_private(folder / "sshd_config", _CONFIG.format(port=login.port))
    if login.job_key:
        home.write_private(folder / CLIENT_CONFIG, client_config(Path(SSH), login))
    return folder


def scripts(login: SshLogin, notes: str, work: str) -> dict[str, str]:
    """Return the scripts that start the service and each of its sessions, by file name."""
    return {
        "sshd": _SERVE.format(port=login.port, notes=notes),
        "session": session_script(f". {SSH}/exports\n", work),
    }


def session_script(variables: str, work: str) -> str:
    """Return the script of a session, which becomes a shell; ``variables`` is a script that exports them."""
    return f"{variables}work={work}\n{_SESSION}"
