"""Why the embedded server's description deviates from the swagger file of OpenPAI 1.8.

``REAL``: the real server deviates too, because its swagger file is not exact. ``DELIBERATE``: our decision.
The first pattern that matches the line explains it.
"""

from __future__ import annotations

import re

REAL, DELIBERATE, UNEXPLAINED = "REAL", "DELIBERATE", "UNEXPLAINED"

_REASONS = [
    # calls
    (r"^GET /api/openapi.json: only", DELIBERATE, "this description"),
    (r"^GET /(healthz|log-manager)", REAL, "of the proxy and the log manager, beside the REST server"),
    (r"^\w+ /api/v1(/\S*)?: only", REAL, "what 1.8 keeps of the v1 API"),
    (r"^\w+ /api/v2/info: only", REAL, "answers every method"),
    (r"^\w+ /api/v2/(user|group)(/\S*)?: only", REAL, "/user and /users, /group and /groups are the same"),
    (r"^PUT /api/v2/(users|groups)/{}/\S+: only", REAL, "single fields, as older servers set them"),
    (r"^GET /api/v2/authn/oidc/", DELIBERATE, "people log in with a password here, never through OIDC"),
    (r"^GET /api/v2/alerts: not", DELIBERATE, "no alert manager runs here"),
    (r"^POST /api/v2/tokens: only", REAL, "a login, as at /api/v1/token"),
    (r"^GET /api/v2/(authn/info|tokens/check|cluster/sku-types): only", REAL, "not in it"),
    (r"^GET /api/v2/storage/(config|server)(/{})?: only", REAL, "not in it"),
    (r"^GET /api/v2/jobs/{}/ssh: only", REAL, "always NoJobSshInfoError"),
    (r"^(PUT|DELETE) /api/v2/virtual-clusters/", REAL, "always NotImplementedError"),
    (r"^GET /api/v2/info 200 \$.engine: only", DELIBERATE, "what runs the jobs of an embedded cluster"),
    # parameters
    (r"query (nodes|labelSelector|tail-mode): only", REAL, "read by the code"),
    # statuses and codes
    (r"status 413: only", REAL, "a body that is too large"),
    (r"status 408: only", DELIBERATE, "a body that takes too long to arrive"),
    (r"status 503: only", DELIBERATE, "too many slow calls at once"),
    (r"status 429: only", REAL, "the rate limits; at a login also too many wrong passwords"),
    (r"status 401: only", REAL, "every call but info and login needs a token"),
    (r"^(PUT|POST|DELETE) (?!.*/login).* status 403: only", REAL,
     "applications, or users who are not admins"),
    (r"status 403: only", DELIBERATE, "a host or an origin that is not this machine's"),
    (r"status 400: only|400 code InvalidParametersError: only", REAL, "a body or query that cannot be read"),
    (r"DELETE /api/v2/tokens/{} status 500: only", REAL, "a text that is no token"),
    (r"/jobs 500 code UnknownError: not", REAL, "odd pages and YAML that cannot be read have no code"),
    (r"status 500: not", DELIBERATE, "nothing is behind this server that could fail"),
    (r"status 501: not", DELIBERATE, "attempts are always kept here"),
    (r"login (status 404: not|400 code \w+: only)", REAL, "an unknown user is 400 NoUserError"),
    (r"GET /api/v2/(users|groups)/{} status 404: not", REAL, "400 NoUserError or NoGroupError"),
    (r"DELETE /api/v2/groups/{} status 20[01]", REAL, "the code says 200"),
    (r"(users|groups)\S* status 40[49]: only", REAL, "a group that is not there, or one that is"),
    (r"404 code NoGroupError: only", REAL, "a group that is not there"),
    (r"403 code RemoveAdminError: only", REAL, "admins cannot be removed"),
    (r"POST /api/v2/jobs 400 code (InvalidProtocolError: only|NoVirtualClusterError: not)", REAL,
     "a document that is not valid; a virtual cluster that is not there is 403"),
    (r"POST /api/v2/jobs status 404: only", REAL, "NoStorageError"),
    (r"404 code (NoTaskError: not|NoJobError: only)", REAL, "a job that is not there is always NoJobError"),
    (r"404 code NoTagError: only", REAL, "NoTagError and NoJobError"),
    (r"job-attempts 404 code NoJobError: not", REAL, "the body is null"),
    # answers
    (r"20[012] \$\.code: not", REAL, "only errors have a code"),
    (r"202? \$\.status: only|200 \$\.status: only", REAL, "the status again"),
    (r"\.hasGitHubPAT: only", REAL, "where the user has set one"),
    (r"\.(appProgress|appTrackingUrl|grouplist|matchedUserLogString): only", REAL, "not in it"),
    (r"\.totalTask[nN]umber: (not|only)", REAL, "misspelt in it"),
    (r"healthz 200 type text/plain: only", REAL, "the text ok"),
    (r"word dshuttle: only", REAL, "a type of 1.8"),
    (r"\.openpaiTasks: only", DELIBERATE, "where the folder of a storage is, for our own client"),
    (r"\.(secretName|mountOptions): not", REAL, "only where a volume has them"),
    (r"\.hived: not", REAL, "only with HiveD"),
    (r"word UNKNOWN: not", DELIBERATE, "no job or task has it here"),
    (r"\.appExitMessages\.runtime: null\|string there, null\|object here", REAL, "an object"),
    (r"\.appExitMessages\.container: null\|string there, null here", REAL, "always null on Kubernetes"),
    (r"\.exitDiagnostics\.launcher: string there, null\|string here", REAL, "null where runtime is set"),
    (r"\.containerGpus: null\|string there, integer\|null here", REAL, "bits, or null"),
    (r"\.totalCount: number there, integer here", REAL, "a count"),
    (r"\.data\[\]\.(podUid|taskIndex|taskName|taskroleName): .*null", DELIBERATE,
     "events of the job as a whole are listed too"),
    (r": (\w+\|null|null\|\w+) there, \w+ here", DELIBERATE, "always known here"),
]  # fmt: skip


def reason(line: str) -> tuple[str, str]:
    """Return the kind of a deviation, and its reason."""
    for pattern, kind, why in _REASONS:
        if re.search(pattern, line):
            return kind, why
    return UNEXPLAINED, "no reason in tests/openapi_reasons.py"
