"""Run `deeprc` commands one after the other in this process, and note after each how it ended.

Arguments: a file of JSON lines, each a list of arguments; and the file to write, with one line of JSON when a command
begins and one when it has ended. So a process that dies has left the number of the command that killed it.
"""

import contextlib
import io
import json
import resource
import signal
import sys
import traceback
from pathlib import Path

from deeprc.cli import main

MEMORY = 4 << 30  # bytes that a command may take beyond what the process has; what is hostile asks for more


def limit_memory():
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, resource.RLIM_INFINITY))


def run(arguments):
    """Return exit code, standard output and error of a command; code -1 and the traceback where it raises."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
            code = 0
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            code = -1
            traceback.print_exc(file=err)
    return code, out.getvalue(), err.getvalue()


if __name__ == "__main__":
    commands, notes = map(Path, sys.argv[1:])
    first = True
    with notes.open("a") as file:
        for number, line in enumerate(commands.read_text().splitlines()):
            print(json.dumps({"begun": number}), file=file, flush=True)
            code, out, err = run(json.loads(line))
            print(json.dumps({"ended": number, "code": code, "out": out, "err": err}), file=file, flush=True)
            if code == 128 + signal.SIGTERM:
                break  # who started this process ends it
            if first and sys.platform == "linux":
                limit_memory()  # after the first command, which has loaded and compiled what is needed
            first = False
