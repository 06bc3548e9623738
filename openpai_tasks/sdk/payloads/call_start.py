"""Check the job's version of Python, then run its calls.

Old images have an old Python, which must be able to read this file to report that: its syntax is that of any
Python since 2.6.
"""

import os
import sys

if __name__ == "__main__":
    wanted, found = sys.argv[1], "%d.%d" % sys.version_info[:2]  # noqa: UP031
    if wanted != found:
        text = "the job's Python is {0}, yours is {1}: cloudpickle needs the same; choose an image with {1}"
        text = text.format(found, wanted)
        folder = os.path.join(os.environ["PAI_OUTPUT_DIR"], ".pai", "results")
        if not os.path.isdir(folder):
            os.makedirs(folder)
        with open(os.path.join(folder, "error.txt"), "w") as file:
            file.write(text)
        sys.exit("error: " + text)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)  # the log shows what a call prints while it runs
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import pai_call_runner  # type: ignore[import-not-found] # beside this file in the job

    pai_call_runner.main(sys.argv[2])
