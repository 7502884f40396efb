"""Results, and the simple ones: those whose repr says all."""

from . import protocol
from .protocol import TEXT, text

LIMIT = 8 << 20  # bytes of one format
MAIN = TEXT, "main", b"1"  # marks the value of a last expression
# Types of which every value is shown by its repr alone.
PLAIN = {bool, bytes, complex, dict, float, frozenset, int, list, range, set, str, tuple}


def show(value, main=False):
    fields = plain_fields(value)
    if fields is None:
        from . import rich

        fields = rich.fields(value)
    if fields is not None:
        send("result", value, [MAIN] * main + fields)


captured = None  # takes the results that are not to be shown


def send(kind, value, fields):
    """Sends a result; where there is no channel, it is printed."""
    if captured is not None:
        from .capturing import Output

        captured.append(Output(kind, value, fields))
    elif not protocol.channel.send(kind, *fields):
        print(repr(value))


def plain_fields(value):
    if type(value) not in PLAIN:
        return None
    try:
        plain = text(repr(value), LIMIT)
    except Exception:
        return None
    return [(TEXT, "text/plain", plain)] if len(plain) < LIMIT else None
