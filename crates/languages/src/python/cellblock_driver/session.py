"""Executes one request after the other in the same `__main__`."""

import builtins
import os
import sys
from sys import exc_info

from . import protocol, streams
from .ending import Ending
from .interrupts import Interrupts
from .source import Source, is_coroutine

executed = []  # the code of all executions that were not refused, in order
before_code = []  # functions that are called before the code of an execution
before_done = []  # functions that show what the code has left open
shell = None  # what `get_ipython()` gives, once something has asked for it
failure = None  # the exception that has ended the code
formatters = None  # what makes other forms of objects, if code has asked for that
settings = {}  # what `%config` has set of figures
show_figures = None  # of `figures`, once pyplot is there
history = None  # what earlier executions were and gave, where there are several
current = None  # the code that is executed
standard_input = builtins.input
OF_FILES = b"__file__", b"argv[0]"  # words of code that looks for its file
OF_PIP = b'"pip"', b"'pip'", b"pip install", b"pip3 install"  # and of code that calls pip


class Session:
    def __init__(self, number, standard_path, assisted):
        self.channel = protocol.channel = protocol.Channel(number)
        self.standard_path = standard_path
        self.assisted = assisted  # names of packages
        self.main = None
        self.status = 0
        self.event_loop = None
        self.reserve = None
        self.excepthook = sys.excepthook
        regions = self.perform, self.finish, self.report, self.list_variables
        self.interrupts = protocol.interrupts = Interrupts(regions, protocol.Channel.write)
        offer()
        builtins.input = input
        builtins.print = streams.print
        streams.unbuffer()
        self.ending = Ending(executed)

    def run(self):
        """Serves requests until the channel ends or the code calls `sys.exit`. The
        process then ends as any Python process does, or as if it had."""
        global history
        self.ending.begin()
        try:
            while True:
                request = self.channel.receive()
                if request is None:
                    break
                self.interrupts.forget()
                if "restored" in request.fields:
                    from . import randomness

                    randomness.renew()
                self.describe() if request.work == b"describe" else self.execute(request)
        finally:
            self.interrupts.end()
            if self.event_loop:
                self.event_loop.close()
            self.main = history = None  # as in plain Python, garbage collection may take it
        self.ending.hasten(self.status)
        if self.status:
            raise SystemExit(self.status)

    def execute(self, request):
        global current, failure, history
        failure = None
        source = current = self.enter(request)
        if history is None and "last" not in request.fields:
            from .history import History

            history = History(vars(self.main))
        self.status = 0
        if self.reserve is None:
            # Untouched pages. An exception sets them free: it takes memory to explain a
            # MemoryError. New ones for each execution would be the old ones, which the
            # allocator then has to clear.
            self.reserve = bytes(4 << 20)
        self.channel.send("started")
        try:
            self.attempt(source, self.perform)
        finally:
            self.attempt(source, self.finish)
            failure = None
            if exc_info()[0] is SystemExit:
                self.channel.send("ending")
            self.channel.send("done")

    def attempt(self, source, region):
        """Calls a function that the program may fail in; reports how it fails."""
        try:
            region(source)
        except SystemExit:
            raise
        except BaseException as error:
            self.interrupts.leave()
            self.reserve = None
            note_failure(error)
            try:
                self.report(source)
            except BaseException:
                self.status = 130
                self.channel.send("error", (protocol.TEXT, "name", b"KeyboardInterrupt"))

    def perform(self, source):
        try:
            self.interrupts.enter()
            if history:
                history.begin(source)
            codes = source.compile()
            executed.append(source.python)
            for function in before_code:
                function()
            value = self.evaluate(codes)
            # In a process that the code has forked, it is nobody's value.
            if value is not None and not self.channel.is_in_fork():
                from . import results

                results.show(value, main=True)
                if history:
                    history.note(value)
        finally:
            self.interrupts.leave()

    def report(self, source):
        from . import errors

        self.status = errors.report(*exc_info(), source, self.excepthook)

    def describe(self):
        """Lists the variables; if it is interrupted, those that it has come to."""
        self.channel.send("started")
        fields = []
        try:
            self.list_variables(fields)
        except BaseException:
            pass
        self.channel.send("variables", *fields)
        self.channel.send("done")

    def list_variables(self, fields):
        from .describe import describe

        if self.main is not None:
            describe(vars(self.main), fields, history.hidden() if history else ())

    def enter(self, request):
        """Makes the process look as if Python had been started with this code."""
        sys.argv = [request.name, *request.arguments]
        source = Source(request.code, request.name, request.directory)
        path = os.path.join(request.directory, request.name)
        if request.has_file and any(word in request.code for word in (*OF_FILES, os.fsencode(request.name))):
            from . import codefile

            codefile.write(path, request.code)
        if any(word in request.code for word in OF_PIP):
            from . import packages

            packages.offer()
        if self.main is not None:
            # Functions of earlier executions keep their names and their sources.
            source.name += "[%s]" % request.execution.decode()
            source.remember()
            self.assisted.add("linecache")
            return source
        self.main = type(sys)("__main__")
        vars(self.main).update(
            __builtins__=builtins,
            __file__=path,
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

    def finish(self, source):
        """Brings out what an execution has shown, drawn and printed."""
        if before_done and not self.channel.is_in_fork():
            for function in before_done:
                function()
        for name in "stdout", "stderr":
            try:
                getattr(sys, name).flush()
            except Exception:
                pass  # closed, or not there; Python itself reports it at its end


def offer():
    """Makes the names that notebooks have beside Python's own."""
    builtins.display, builtins.get_ipython, builtins.__IPYTHON__ = display, get_ipython, True


def note_failure(error):
    """Keeps the exception for functions that are called after the code, if there are any."""
    global failure
    failure = error if before_done and failure is None else failure


def display(*values, **options):
    """Shows each value as a result of its own, in its richest forms."""
    if options:
        from .display import display_with

        return display_with(values, **options)
    from . import results

    for value in values:
        results.show(value)


def get_ipython():
    """The shell of a notebook, as far as there is one."""
    from . import notebook

    return notebook.shell


def input(prompt="", /):
    """Reads a line of standard input, as Python's own does."""
    try:
        return standard_input(prompt)
    except EOFError:
        message = "there is no more standard input: put the values into the code, or pass them along"
    raise EOFError(message)
