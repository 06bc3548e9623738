"""Translate status codes of SMB ([MS-ERREF]) to our errors."""

from __future__ import annotations

from openpai_tasks.errors import ApiError, Denied, NoSuchPath, NotFound, PaiError, PathError, Unreachable

NO_MORE_FILES = 0x80000006
STOPPED_ON_SYMLINK = 0x8000002D
NO_SUCH_FILE = 0xC000000F
END_OF_FILE = 0xC0000011
NAME_COLLISION = 0xC0000035
PATH_NOT_FOUND = 0xC000003A
DELETE_PENDING = 0xC0000056
NOT_EMPTY = 0xC0000101
NOT_A_FOLDER = 0xC0000103

MISSING = {
    NO_SUCH_FILE,
    0xC0000034,  # object name not found
    PATH_NOT_FOUND,
    0xC0000225,  # not found
}
FORBIDDEN = {
    0xC0000022: "access denied",
    0xC0000061: "access denied: a privilege is missing",
    0xC00000A2: "the share is read-only",
    0xC0000121: "the server does not allow its removal",
    0xC00000CA: "access to the share denied",
}
REFUSED = {
    0xC0000033: "the server allows no such name",
    NAME_COLLISION: "the name exists already",
    0xC0000039: "the server allows no such path",
    0xC000003B: "the server allows no such path",
    0xC0000044: "the quota is used up",
    0xC000007F: "no space left on the share",
    0xC00000BA: "a folder, not a file",
    NOT_EMPTY: "the folder is not empty",
    NOT_A_FOLDER: "a file, not a folder",
    0xC0000106: "the name is too long",
    STOPPED_ON_SYMLINK: "a link, which SMB leaves to the client and which is not followed",
    0xC0000257: "it is on another server (DFS); use the address of that server",
    0xC0000904: "the file is larger than the server allows",
}
BUSY = {
    0xC0000043: "in use by another program",
    0xC0000054: "locked by another program",
    DELETE_PENDING: "it is being removed",
    0xC000009A: "the server is out of resources",
    0xC00000B5: "the server is too slow",
    0xC00000D0: "the server accepts no more requests",
    0xC000011F: "the server has too many files open",
    0xC0000205: "the server is out of resources",
    0xC0000466: "the server is not available now",
    0xC00000E9: "the server cannot read or write its disk",
    0xC0000185: "the server cannot read or write its disk",
}
LOST = {
    0xC0000008: "the server has lost the file's handle",
    0xC00000C9: "the share was removed",
    0xC0000128: "the server has closed the file",
    0xC0000203: "the server has ended the session",
    0xC000020C: "the server has ended the connection",
    0xC000020D: "the server has ended the connection",
    0xC000035C: "the session is over",
}
"""Codes after which the connection is closed: the next try opens a new one."""
NO_LOGIN = {
    0xC000006A: "wrong name or password",
    0xC000006D: "wrong name or password",
    0xC0000064: "no such user",
    0xC000006E: "the account is restricted",
    0xC000006F: "login is not allowed at this time",
    0xC0000070: "login is not allowed from this machine",
    0xC0000071: "the password has expired",
    0xC0000072: "the account is disabled",
    0xC000015B: "the account may not log in here",
    0xC0000193: "the account has expired",
    0xC0000224: "the password must be changed first",
    0xC0000234: "the account is locked",
    0xC0000022: "access denied",
}
NO_SHARE = {0xC00000CC}


class NoShare(NotFound):
    """Raised when the server has no such share, so that nothing is known about files on it."""


class AlreadyExists(PathError):
    """Raised when the name already exists."""


class NotFolder(PathError):
    """Raised when a file is where a folder should be."""


class NotEmpty(PathError):
    """Raised when a folder is not empty."""


class UnfollowedLink(PathError):
    """Raised for a symlink that the server does not follow."""


KINDS = {
    NAME_COLLISION: AlreadyExists,
    NOT_A_FOLDER: NotFolder,
    NOT_EMPTY: NotEmpty,
    STOPPED_ON_SYMLINK: UnfollowedLink,
}


def make_error(status: int, path: str, host: str) -> PaiError:
    """Return the error for a status of the server about the path."""
    if status in MISSING:
        return NoSuchPath(f"{path}: no such file or folder on {host}")
    if status in FORBIDDEN:
        return Denied(f"{path}: {FORBIDDEN[status]}", 403)
    if status in LOST:
        return Unreachable(f"{path}: {LOST[status]}")
    if status in BUSY:
        return ApiError(f"{path}: {BUSY[status]}", 503)
    kind = KINDS.get(status, PathError)
    return kind(f"{path}: {REFUSED.get(status) or f'{host} refused it (0x{status:08x})'}")
