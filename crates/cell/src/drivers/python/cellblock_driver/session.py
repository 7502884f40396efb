"""Executes one request after the other in the same `__main__`."""

import builtins
import os
import sys
from _signal import SIG_IGN, SIGINT, signal  # `signal` itself takes a millisecond to import
from sys import exc_info

from . import protocol
from .source import Source, is_coroutine

before_done = []  # functions that show what the code has left open


class Session:
    def __init__(self, number, standard_path):
        self.channel = protocol.channel = protocol.Channel(number)
        self.standard_path = standard_path
        self.main = None
        self.status = 0
        self.event_loop = None
        self.reserve = None
        self.excepthook = sys.excepthook
        builtins.display = display
        if sys.stdout is not None:
            sys.stdout.reconfigure(line_buffering=True)

    def run(self):
        """Serves requests until the channel ends or the code calls `sys.exit`. The
        process then ends as any Python process does."""
        try:
            for request in self.requests():
                self.execute(request)
        finally:
            if self.event_loop:
                self.event_loop.close()
            self.main = None  # as in plain Python, garbage collection may take it
        if self.status:
            raise SystemExit(self.status)

    def requests(self):
        while True:
            # Between two executions, there is nothing to interrupt.
            handler = signal(SIGINT, SIG_IGN)
            request = self.channel.receive()
            if handler is not None:
                signal(SIGINT, handler)
            if request is None:
                return
            yield request

    def execute(self, request):
        source = self.enter(request)
        self.status = 0
        # Untouched pages. An exception sets them free: it takes memory to explain a
        # MemoryError.
        self.reserve = bytes(4 << 20)
        self.channel.send("started")
        is_parsed = False
        try:
            codes = source.compile()
            is_parsed = True
            value = self.evaluate(codes)
            if value is not None:
                from . import results

                results.show(value, main=True)
        except SystemExit:
            raise
        except BaseException:
            self.reserve = None
            from . import errors

            self.status = errors.report(*exc_info(), source, is_parsed, self.excepthook)
        finally:
            self.finish()
            if exc_info()[0] is SystemExit:
                self.channel.send("ending")
            self.channel.send("done")

    def enter(self, request):
        """Makes the process look as if Python had been started with this code."""
        sys.argv = [request.name, *request.arguments]
        source = Source(request.code, request.name)
        if self.main is not None:
            from . import tracebacks

            # Functions of earlier executions keep their names and their sources.
            source.name += "[%s]" % request.execution.decode()
            tracebacks.remember(source)
            return source
        self.main = type(sys)("__main__")
        vars(self.main).update(
            __builtins__=builtins,
            __file__=os.path.join(request.directory, request.name),
            __loader__=source,
        )
        sys.modules["__main__"] = self.main
        sys.path = [request.directory, *self.standard_path]
        return source

    def evaluate(self, codes):
        """Evaluates the code objects in turn; the value of the last one."""
        scope = vars(self.main)
        if any(map(is_coroutine, codes)):
            from . import eventloop

            self.event_loop = eventloop
            return eventloop.run(codes, scope)
        for code in codes:
            value = eval(code, scope)
        return value

    def finish(self):
        """Brings out what an execution has shown, drawn and printed."""
        for function in before_done:
            function()
        for name in "stdout", "stderr":
            try:
                getattr(sys, name).flush()
            except Exception:
                pass  # closed, or not there; Python itself reports it at its end


def display(*values, **options):
    """Shows each value as a result of its own, in its richest forms."""
    if options:
        from .display import display_with

        return display_with(values, **options)
    from . import results

    for value in values:
        results.show(value)
