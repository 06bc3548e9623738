"""The process that runs TensorBoard for tensorboard.py; it ends, and removes its folder, with its input."""

from __future__ import annotations

import json
import os
import shutil
import sys


def main() -> None:
    """Serve the folder that a line of the input names, and print the address."""
    options = json.loads(sys.stdin.readline())
    from tensorboard import program

    board = program.TensorBoard()
    board.configure(
        argv=[
            *("tensorboard", f"--logdir={options['folder']}/runs", "--host=127.0.0.1"),
            *(f"--port={options['port']}", f"--path_prefix={options['path']}"),
            *("--load_fast=false", "--reload_multifile=true", "--reload_interval=5"),
        ]
    )
    try:
        url = board.launch()  # unlike main(), it leaves no file with the address in /tmp
    except program.TensorBoardServerException as err:
        sys.exit(err.msg)
    os.write(1, f"{url}\n".encode())
    sys.stdin.read()
    shutil.rmtree(options["folder"], ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    main()
