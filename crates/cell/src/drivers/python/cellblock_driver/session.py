"""Executes one request after the other in the same `__main__`."""

import builtins
import os
import sys
from _signal import SIG_IGN, SIGINT, signal  # `signal` itself takes a millisecond to import
from sys import exc_info

from . import errors, protocol, results
from .source import Source, is_coroutine


class Session:
    def __init__(self, number, standard_path):
        self.channel = protocol.channel = protocol.Channel(number)
        self.standard_path = standard_path
        self.main = None
        self.status = 0
        self.event_loop = None
        self.reserve = None
        builtins.display = results.display
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
                results.show(value, main=True)
        except SystemExit:
            raise
        except BaseException:
            self.reserve = None
            self.status = errors.report(*exc_info(), source, is_parsed)
        finally:
            results.finish()
            self.channel.send("done")

    def enter(self, request):
        """Makes the process look as if Python had been started with this code."""
        sys.argv = [request.name, *request.arguments]
        if self.main is not None:
            # Functions of earlier executions keep their names and their sources.
            source = Source(request.code, "%s[%s]" % (request.name, request.execution.decode()))
            source.remember()
            return source
        source = Source(request.code, request.name)
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
