# Results that are more than a repr: compiled when there is the first of them,
# in the globals that all parts of the shim share.

BUDGET = 15 << 20  # bytes of all formats of one result

FORMS = (
    ("html", "text/html"),
    ("markdown", "text/markdown"),
    ("latex", "text/latex"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("jpeg", "image/jpeg"),
    ("pdf", "application/pdf"),
    ("json", "application/json"),
    ("javascript", "application/javascript"),
)


def fields(value, main, raw):
    """The fields of a result frame."""
    failed = {}
    bundle = dict(value) if raw else describe(value, failed)
    fields, budget = [(b"t", "main", b"1")] if main else [], BUDGET
    for key, data in bundle.items():
        if data is None or type(key) is not str or len(key) > 100:
            continue
        try:
            field = pack(key, data, failed)
            budget -= len(field[2])
            if budget < 0:
                raise ValueError("more than %d bytes in one result" % BUDGET)
            fields.append(field)
        except Exception as error:
            failed[key] = complaint(error)
    for key, reason in failed.items():
        fields.append((b"t", "failed", text(key, 100) + b": " + reason))
    return fields


def describe(value, failed):
    """Media types and data, by the conventions of Jupyter."""
    bundle = {}
    # A class's methods are not for the class itself, and an object that has
    # every attribute has none that means anything.
    canary = "_ipython_canary_method_should_not_exist_"
    if not isinstance(value, type) and ask(value, canary, {}, "") is None:
        data = ask(value, "_repr_mimebundle_", failed, "mimebundle", include=None, exclude=None)
        if isinstance(data, dict):
            bundle.update(data)
        for method, key in FORMS:
            if key not in bundle:
                bundle[key] = ask(value, "_repr_%s_" % method, failed, key)
    if "text/plain" not in bundle:
        try:
            bundle["text/plain"] = repr(value)
        except Exception as error:
            failed["text/plain"] = complaint(error)
            bundle["text/plain"] = "<unprintable %s object>" % type(value).__name__
    return bundle


def ask(value, method, failed, key, **keywords):
    """What a `_repr_*_` method gives, without its metadata."""
    try:
        function = getattr(value, method, None)
        data = None if function is None else function(**keywords)
        return data[0] if type(data) is tuple and len(data) == 2 else data
    except Exception as error:
        failed[key] = complaint(error)


def pack(key, data, failed):
    """The field of one format."""
    if isinstance(data, str):
        form, value = b"t", text(data, LIMIT + 1)
    elif isinstance(data, (bytes, bytearray, memoryview)):
        form, value = b"b", bytes.join(b"", [data])
    else:
        import json

        form, value = b"j", text(json.dumps(data, allow_nan=False), LIMIT + 1)
    if len(value) > LIMIT:
        if key != "text/plain":
            raise ValueError("more than %d bytes" % LIMIT)
        failed[key] = b"cut to %d bytes" % LIMIT
        value = value[:LIMIT]
    return form, key, value


def complaint(error):
    return text(type(error).__name__, 100) + b": " + call("errors.py", "clipped", error, 300)
