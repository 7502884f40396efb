"""`%%capture` and `capture_output`: what code prints and displays, kept and not shown."""

import contextlib
import io
import sys

from . import results, session


class Output:
    """Something that was displayed."""

    def __init__(self, kind, value, fields):
        self.kind, self.value, self.fields = kind, value, fields
        self.data = {key: data for form, key, data in fields if "/" in key}

    def display(self):
        results.send(self.kind, self.value, self.fields)

    def __repr__(self):
        return "<what was displayed of %r>" % (self.value,)


class Captured:
    """What was printed and displayed."""

    def __init__(self):
        self.out, self.err, self.outputs = io.StringIO(), io.StringIO(), []

    stdout = property(lambda self: self.out.getvalue())
    stderr = property(lambda self: self.err.getvalue())

    def show(self):
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)
        for output in self.outputs:
            output.display()

    __call__ = show

    def __str__(self):
        return self.stdout


@contextlib.contextmanager
def capture_output(stdout=True, stderr=True, display=True):
    captured, before = Captured(), results.captured
    with contextlib.ExitStack() as stack:
        if stdout:
            stack.enter_context(contextlib.redirect_stdout(captured.out))
        if stderr:
            stack.enter_context(contextlib.redirect_stderr(captured.err))
        if display:
            results.captured = captured.outputs
        try:
            yield captured
            if "matplotlib.pyplot" in sys.modules:
                session.show_figures()
        finally:
            results.captured = before
