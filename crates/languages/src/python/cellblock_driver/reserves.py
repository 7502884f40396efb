"""Memory that is mapped and not used counts where no cgroup counts what is used. Python has little to
reserve, so that a request far above the limit is an exception. Programs that it starts may need more:
Node maps half a gigabyte for its code."""

import os
import resource
from _thread import allocate_lock

DATA = resource.RLIMIT_DATA


class Reserve:
    """What this process may map is raised while it starts programs, which inherit that."""

    def __init__(self):
        self.begin()
        os.register_at_fork(after_in_child=self.begin_in_child)

    def begin(self):
        self.lock = allocate_lock()
        self.starts = 0
        self.own = None  # what this process may map meanwhile

    def begin_in_child(self):
        own = self.own
        self.begin()
        if own:
            resource.setrlimit(DATA, own)

    def __enter__(self):
        with self.lock:
            if not self.starts:
                self.own = resource.getrlimit(DATA)
                resource.setrlimit(DATA, (self.own[1], self.own[1]))
            self.starts += 1

    def __exit__(self, *_):
        with self.lock:
            self.starts -= 1
            if not self.starts:
                own, self.own = self.own, None
                resource.setrlimit(DATA, own)


reserve = Reserve()


def lifted(start):
    """The function, which starts a program, with what that may map."""

    def with_reserve(*arguments, **options):
        with reserve:
            return start(*arguments, **options)

    return with_reserve
