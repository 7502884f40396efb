#!/usr/bin/env python3
"""An agent that corrects its own code from cellblock's records.

    agent.py [CELLBLOCK]

The task: the mean of the readings in readings.csv, by sensor. A model would
write each attempt; here `next_attempt` stands in for it, so that the example
needs no network and always takes the same way. What it decides by is what a
model would be given: `errorCategory`, `isRetryable`, `context` and what was
denied.
"""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CELLBLOCK = sys.argv[1] if len(sys.argv) > 1 else "cellblock"
TASK = "the mean of the readings in readings.csv, by sensor"
MOST_ATTEMPTS = 6


def run(code, options):
    """Runs code in a cell; the record says everything about it."""
    call = [CELLBLOCK, "run", "--json", "--lang", "python", "--wall", "20s", *options, "-"]
    done = subprocess.run(call, input=code, capture_output=True, text=True)
    return json.loads(done.stdout)


def as_tool_result(record):
    """What a model gets to read of it: the same record in another shape."""
    call = [CELLBLOCK, "show", "-", "--format", "tool"]
    done = subprocess.run(call, input=json.dumps(record), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


# ------------------------------------------------------- the model's stand-in

WITH_A_MODULE = """
import sensorkit_pro
print(sensorkit_pro.means("readings.csv"))
"""

FROM_THE_NETWORK = """
import csv, io, urllib.request
text = urllib.request.urlopen("http://192.0.2.1/readings.csv", timeout=5).read().decode()
print(len(list(csv.reader(io.StringIO(text)))))
"""

ALL_AT_ONCE = """
# Room for a table of all sensors and all seconds of the year.
table = bytearray(8 * 365 * 24 * 3600)
print(len(table))
"""

STREAMING = """
import csv
totals = {}
with open("readings.csv", newline="") as file:
    for row in csv.DictReader(file):
        count, total = totals.get(row["sensor"], (0, 0.0))
        totals[row["sensor"]] = count + 1, total + float(row["value"])
{sensor: round(total / count, 2) for sensor, (count, total) in sorted(totals.items())}
"""

FILE = ["--file", str(HERE / "readings.csv")]
LITTLE = ["--memory", "96M"]


def next_attempt(result):
    """What is learnt from a failure: why, the next code, and its options."""
    if result is None:
        return "a library must know this", WITH_A_MODULE, LITTLE
    if not result["isRetryable"] and result["errorCategory"] != "network":
        return None
    learnt = {
        "import": ("no such module here, so the data itself has to do", FROM_THE_NETWORK, LITTLE),
        "network": ("there is no network, so the file has to be given", ALL_AT_ONCE, FILE + LITTLE),
        "memory": ("it does not fit, so one line after the other", STREAMING, FILE + LITTLE),
    }
    return learnt.get(result["errorCategory"])


# ---------------------------------------------------------------------- agent


def main():
    print(f"task: {TASK}")
    result = None
    for number in range(1, MOST_ATTEMPTS + 1):
        attempt = next_attempt(result)
        if attempt is None:
            break
        thought, code, options = attempt
        print(f"\nattempt {number}: {thought}")
        record = run(code, options)
        result = as_tool_result(record)
        if not result["isError"]:
            answer = next(item["text"] for item in record["results"] if item["is_main_result"])
            print(f"  ok in {result['execution_time']:.2f} s\n\nanswer: {answer}")
            return 0
        print(f"  {record['outcome']}, {result['errorCategory']}: {result['context']}")
        for denied in record["denied"]:
            print(f"  denied: {denied['name']}, {denied.get('reason', denied['action'])}")
    print(f"\ngiven up: {result['context']}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
