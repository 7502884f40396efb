# Frames, and the results whose repr says all: compiled when there is the first
# of them, in the globals that all parts of the shim share. What must outlast
# two threads that are first at once is in shim.py: the queue and its lock.

LIMIT = 8 << 20  # bytes of one format
# Types of which every value is shown by its repr alone.
PLAIN = {bool, bytes, complex, dict, float, frozenset, int, list, range, set, str, tuple}


def send(kind, *fields):
    """Sends a frame of (type, key, bytes) fields; false when it cannot."""
    if not say():
        return False
    parts = [b"\0\0\0\0"]
    for form, key, value in ((b"t", "kind", kind.encode()),) + fields:
        key = key.encode()
        parts += (form, len(key).to_bytes(1, "big"), len(value).to_bytes(4, "big"), key, value)
    parts[0] = sum(map(len, parts[1:])).to_bytes(4, "big")
    queue.append(memoryview(b"".join(parts)))
    # Whoever holds the lock sends for all: waiting for it would deadlock in a
    # signal handler that displays something. Only the last frame waits.
    while queue and lock.acquire(True, 5 if kind == "done" else 0):
        try:
            while queue:
                queue[0] = queue[0][write(channel, queue[0]) :]
                if not queue[0]:
                    del queue[0]
        except OSError:
            queue.clear()
            return False
        finally:
            lock.release()
    return True


def text(value, limit):
    # Unbound methods: a subclass of str may override its own.
    return str.encode(str.__getitem__(value, slice(0, limit)), "utf-8", "surrogatepass")


def show(value, main=False):
    fields = None
    if type(value) in PLAIN:
        try:
            plain = text(repr(value), LIMIT)
        except Exception:
            plain = None
        if plain is not None and len(plain) < LIMIT:
            fields = [(b"t", "text/plain", plain)]
            if main:
                fields.append((b"t", "main", b"1"))
    fields = fields or call("rich.py", "fields", value, main)
    if fields and not send("result", *fields):
        print(repr(value))


def show_all(*values, **options):
    if options:
        return call("display.py", "display_with", values, **options)
    for value in values:
        show(value)
