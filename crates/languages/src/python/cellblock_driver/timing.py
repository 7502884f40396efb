"""`%time` and `%timeit`."""

import math
import time
import timeit

UNITS = ("s", 1), ("ms", 1e3), ("µs", 1e6), ("ns", 1e9)


def once(function):
    """Calls the function, prints how long it took, and returns its value."""
    begin, used = time.perf_counter(), time.process_time()
    try:
        return function()
    finally:
        used = time.process_time() - used
        print("CPU times: total: %s" % duration(used))
        print("Wall time: %s" % duration(time.perf_counter() - begin))


def often(line, cell, namespace):
    """Times a statement as `timeit` does; with a cell, the line prepares it."""
    options, statement = parse(line)
    timer = timeit.Timer(*((cell, statement or "pass") if cell else (statement, "pass")), globals=namespace)
    loops = options.get("n") or timer.autorange()[0]
    runs = [each / loops for each in timer.repeat(options.get("r", 7), loops)]
    mean = sum(runs) / len(runs)
    deviation = math.sqrt(sum((each - mean) ** 2 for each in runs) / len(runs))
    several = "s" if loops > 1 else ""
    print(
        "%s ± %s per loop (mean ± std. dev. of %d run%s, %s loop%s each)"
        % (duration(mean), duration(deviation), len(runs), "s"[: len(runs) > 1], "{:,}".format(loops), several)
    )


def parse(line):
    """The options -n and -r, and the rest."""
    options = {}
    while line[:2] in ("-n", "-r"):
        name, rest = line[1], line[2:].lstrip()
        number, _, line = rest.partition(" ")
        options[name], line = int(number), line.lstrip()
    return options, line


def duration(seconds):
    """Three digits, in the unit that fits."""
    for unit, factor in UNITS:
        if seconds * factor >= 1 or unit == "ns":
            return "%.3g %s" % (seconds * factor, unit)
