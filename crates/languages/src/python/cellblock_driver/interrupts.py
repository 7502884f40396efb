"""SIGINT: it interrupts what an execution runs, and nothing of the driver's own."""

from _signal import SIGINT, default_int_handler, getsignal, signal  # `signal` takes a millisecond
from _thread import get_ident


class Interrupts:
    """`regions` are functions of which the driver catches every exception: within them,
    the signal raises KeyboardInterrupt. Within `whole` it waits for the function's end."""

    def __init__(self, regions, whole):
        self.regions = {function.__code__ for function in regions}
        self.whole = whole.__code__
        self.is_pending = False
        self.is_waiting = False
        self.error = None  # what is raised instead of KeyboardInterrupt
        self.thread = get_ident()
        self.handler = self.interrupt  # the program may have set another one
        signal(SIGINT, self.interrupt)

    def interrupt(self, number, frame):
        is_whole = False
        while frame:
            if frame.f_code is self.whole:
                is_whole = True
            elif frame.f_code in self.regions:
                if not is_whole:
                    raise self.cause()
                self.is_waiting = True
                return
            frame = frame.f_back
        self.is_pending = True

    def raise_in_main(self, error):
        """Ends what the main thread executes with this exception; any thread may call it."""
        from _signal import pthread_kill

        self.error = error
        pthread_kill(self.thread, SIGINT)  # which also ends its waiting

    def cause(self):
        error, self.error = self.error, None
        return error or KeyboardInterrupt()

    def forget(self):
        """Forgets what has come so far: it was not for the next execution."""
        self.is_pending = self.is_waiting = False
        self.error = None

    def enter(self):
        """Begins a region, with the program's own handler; raises what came before."""
        signal(SIGINT, self.handler)
        if self.is_pending:
            self.is_pending = False
            raise self.cause()

    def leave(self):
        """Ends a region; the program's own handler rests."""
        try:
            self._leave()
        except BaseException:
            self._leave()  # that was the last signal that the program's own handler saw

    def _leave(self):
        handler = getsignal(SIGINT)
        signal(SIGINT, self.interrupt)
        if handler is not None and handler != self.interrupt:
            self.handler = handler

    def end_whole(self):
        """Ends what was not to be interrupted."""
        if self.is_waiting and get_ident() == self.thread:
            self.is_waiting = False
            raise self.cause()

    def end(self):
        """What follows is Python's own end."""
        signal(SIGINT, default_int_handler)
