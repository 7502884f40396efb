# The part of the shim that most runs do without: rich results, tracebacks and
# event loops. shim.py compiles it when it is needed, in globals of its own.


class Report:
    BUDGET = 15 << 20  # bytes of all formats of one result
    LINES, WIDTH = 400, 2000  # of a traceback

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

    def __init__(self, source, name, send, text, clipped, limit):
        self.source, self.name, self.send = source, name, send
        self.text, self.clipped, self.limit = text, clipped, limit

    # --- results

    def fields(self, value, main, raw):
        """The fields of a result frame."""
        failed = {}
        bundle = dict(value) if raw else self.describe(value, failed)
        fields, budget = [(b"t", "main", b"1")] if main else [], self.BUDGET
        for key, data in bundle.items():
            if data is None or type(key) is not str or len(key) > 100:
                continue
            try:
                field = self.pack(key, data, failed)
                budget -= len(field[2])
                if budget < 0:
                    raise ValueError("more than %d bytes in one result" % self.BUDGET)
                fields.append(field)
            except Exception as error:
                failed[key] = self.complaint(error)
        for key, reason in failed.items():
            fields.append((b"t", "failed", self.text(key, 100) + b": " + reason))
        return fields

    def describe(self, value, failed):
        """Media types and data, by the conventions of Jupyter."""
        bundle = {}
        # A class's methods are not for the class itself, and an object that has
        # every attribute has none that means anything.
        canary = "_ipython_canary_method_should_not_exist_"
        if not isinstance(value, type) and self.ask(value, canary, {}, "") is None:
            data = self.ask(
                value, "_repr_mimebundle_", failed, "mimebundle", include=None, exclude=None
            )
            if isinstance(data, dict):
                bundle.update(data)
            for method, key in self.FORMS:
                if key not in bundle:
                    bundle[key] = self.ask(value, "_repr_%s_" % method, failed, key)
        if "text/plain" not in bundle:
            try:
                bundle["text/plain"] = repr(value)
            except Exception as error:
                failed["text/plain"] = self.complaint(error)
                bundle["text/plain"] = "<unprintable %s object>" % type(value).__name__
        return bundle

    def ask(self, value, method, failed, key, **keywords):
        """What a `_repr_*_` method gives, without its metadata."""
        try:
            function = getattr(value, method, None)
            data = None if function is None else function(**keywords)
            return data[0] if type(data) is tuple and len(data) == 2 else data
        except Exception as error:
            failed[key] = self.complaint(error)

    def pack(self, key, data, failed):
        """The field of one format."""
        if isinstance(data, str):
            form, value = b"t", self.text(data, self.limit + 1)
        elif isinstance(data, (bytes, bytearray, memoryview)):
            form, value = b"b", bytes.join(b"", [data])
        else:
            import json

            form, value = b"j", self.text(json.dumps(data, allow_nan=False), self.limit + 1)
        if len(value) > self.limit:
            if key != "text/plain":
                raise ValueError("more than %d bytes" % self.limit)
            failed[key] = b"cut to %d bytes" % self.limit
            value = value[: self.limit]
        return form, key, value

    def complaint(self, error):
        return self.text(type(error).__name__, 100) + b": " + self.clipped(error, 300)

    # --- errors

    def traceback(self, kind, value, trace):
        """The traceback as Python prints it, as fields of an error frame."""
        import linecache
        import traceback

        lines = self.decoded().splitlines(True)
        linecache.cache[self.name] = (len(self.source), None, lines, self.name)
        if isinstance(value, SyntaxError) and value.filename == self.name and value.text is None:
            if value.lineno and value.lineno <= len(lines):
                value.text = lines[value.lineno - 1]
        shown = "".join(traceback.format_exception(kind, value, trace)).split("\n")[:-1]
        if len(shown) > self.LINES:
            left_out = "  … %d lines left out …" % (len(shown) - self.LINES)
            shown[self.LINES // 4 : -self.LINES * 3 // 4] = [left_out]
        return [(b"t", "traceback", self.text(line, self.WIDTH)) for line in shown]

    def decoded(self):
        """The code as text."""
        import sys

        try:
            return sys.modules["_frozen_importlib_external"].decode_source(self.source)
        except (LookupError, SyntaxError, UnicodeError):
            return self.source.decode("utf-8", "replace")

    # --- code

    def awaiting(self, parts, scope, show_main):
        """An iterator that evaluates the code objects in one event loop."""
        import asyncio

        async def run():
            for part in parts:
                value = eval(part, scope)
                show_main(await value if part.co_flags & 0x80 else value)

        return map(asyncio.run, [run()])
