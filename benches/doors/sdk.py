"""E2B's own Python SDK as a client that is timed: sdk.py (the server, by the SDK's variables)

A line of standard input has the name of a function below; the answer is its time in nanoseconds.
"""

import sys
import time

from e2b_code_interpreter import Sandbox


def check(execution):
    assert execution.text == "2", execution


def whole():
    sandbox = Sandbox.create()
    check(sandbox.run_code("1+1"))
    sandbox.kill()


def live():
    check(standing.run_code("1+1"))


standing = Sandbox.create()
work = {"whole": whole, "live": live}
print(0, flush=True)
for line in sys.stdin:
    began = time.perf_counter_ns()
    work[line.strip()]()
    print(time.perf_counter_ns() - began, flush=True)
standing.kill()
