"""Exit codes of our commands; those of jobs are in protocol/exit_codes.py."""

BAD_INPUT = 120
UNREACHABLE = 121
REFUSED = 122
BAD_PATH = 123
TIMED_OUT = 124  # as timeout(1)
FAILED = 125
INTERRUPTED = 128 + 2  # by SIGINT, as shells count it
BROKEN_PIPE = 128 + 13  # by SIGPIPE
TERMINATED = 128 + 15  # by SIGTERM
