"""Serves forks of this interpreter, which has loaded modules that take long to load.

The template never sees a program: it reads requests of the supervisor's, each a message
with descriptors, and answers none of them. Each fork is made in the pid namespace of a
cell, where the cell's init adopts it, while init sets up the rest. It then gets a request
of its own, with the system calls by which it enters the cell's other namespaces and
confines itself; the last one loads the filter. Copy and supervisor take turns:

    copy                                    supervisor
    hello
    watch: a userfaultfd, or -1     ──────► takes it; limits, cgroup
                                    ◄────── request {descriptors, calls}
    calls
    locked: result of the last call ──────► takes the filter's listener
                                    ◄────── park
    closes all but its own descriptors; the end of the socket says so
"""

import ctypes
import gc
import importlib
import os
import sys
import time
from select import poll

import _socket

from . import doublefork, ending, immortal, protocol, randomness, rehearsal

CLONE_NEWPID = 0x20000000
EAGAIN, EOPNOTSUPP = 11, 95
FREE = 16  # descriptors below this number are a copy's own
STREAMS = 5  # the first ones of a copy's request become its 0, 1, …
LONGEST = 1 << 20  # bytes of a request
MOST = 64  # descriptors of a request
PATIENCE = 20  # seconds
EXIT_TIMEOUT = 100  # milliseconds until a copy that has announced its end exits by itself
CONTROL = 256  # the supervisor's socket, above all of them
# What a program mostly needs of the driver; the rest comes with the packages.
MODULES = "display ending errors history results rich session source tables tracebacks"


class Failure(Exception):
    """A system call of a copy that failed: which one, by its place, and why."""


class Program(ctypes.Structure):
    """struct sock_fprog of linux/filter.h."""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


def system_call():
    """syscall(2), for arguments of type c_long."""
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    return syscall


class Calls:
    """System calls that a request asks for, as lines of text: the call's number, then
    its arguments. A letter before each says what it is: a number, the number of a
    descriptor in the request, of a buffer, or of a buffer that is a filter. A call that
    must fail has the error number before its own, with an exclamation mark."""

    def __init__(self, fields, descriptors):
        self.lines = fields.get("call", [])
        self.buffers = [ctypes.create_string_buffer(b, len(b)) for b in fields.get("buffer", [])]
        self.descriptors = descriptors
        self.programs = []
        self.syscall = system_call()

    def make(self, first, last):
        """Makes those of these places; the result of the last one."""
        result = 0
        for index in range(first, last):
            number, *words = self.lines[index].split()
            refused, _mark, number = number.rpartition(b"!")
            arguments = [ctypes.c_long(int(number)), *map(self.argument, words)]
            result = self.syscall(*arguments)
            if refused:
                if result != -1 or ctypes.get_errno() != int(refused):
                    raise Failure(index, EOPNOTSUPP)  # it should have been refused
            elif result == -1:
                raise Failure(index, ctypes.get_errno())
        return result

    def argument(self, word):
        kind, number = word[:1], int(word[1:])
        if kind == b"n":
            return ctypes.c_long(number)
        if kind == b"d":
            return ctypes.c_long(self.descriptors[number])
        buffer = self.buffers[number]
        if kind == b"b":
            return ctypes.c_void_p(ctypes.addressof(buffer))
        program = Program(len(buffer) // 8, ctypes.addressof(buffer))
        self.programs.append(program)
        return ctypes.c_void_p(ctypes.addressof(program))


def serve(number, names, load):
    """Loads the modules, then forks copies until the supervisor is gone. Returns in
    each copy, once it is confined."""
    reserved = rehearsal.reserve()
    for name in MODULES.split():
        load(name)
    load("session").offer()  # packages look for it at their import
    # The modules of packages are imported as a program would import them.
    for name in names:
        importlib.import_module(name)
    if len(os.listdir("/proc/self/task")) > 1:
        raise SystemExit("cellblock: these modules start threads, which no fork has")
    control = _socket.socket(fileno=_high(number))
    while os.open(os.devnull, os.O_RDWR) < FREE - 1:
        pass  # so that no descriptor of a request has a number of a copy's own
    rehearsal.rehearse()  # what is made at first use is shared by all copies
    randomness.renew()  # likewise
    ending.survey()
    ending.await_end = await_end
    reserved.clear()
    gc.collect()
    immortal.immortalise()
    gc.freeze()
    pieces = rehearsal.learn()
    # Not before: a huge page that this process writes to while a fork shares it is split.
    rehearsal.collapse()
    control.send(b"ready")
    twice = None
    while True:
        fields, descriptors = receive(control)
        # Not before `immortalise`, so that a copy frees it.
        twice = twice or doublefork.find(fields["double_fork"][0])
        if fork(twice, fields, descriptors, pieces):
            control.detach()
            return
        for descriptor in descriptors:
            os.close(descriptor)


def _high(number):
    """Moves a descriptor out of the way."""
    import fcntl

    high = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, CONTROL)
    os.close(number)
    return high


def receive(control):
    """The next request."""
    space = _socket.CMSG_SPACE(MOST * 4)
    body, control_data, _flags, _address = control.recvmsg(LONGEST, space)
    if not body:
        os._exit(0)
    descriptors = []
    for _level, _kind, data in control_data:
        numbers = memoryview(data)[: len(data) // 4 * 4].cast("i")
        descriptors.extend(numbers)
    return protocol.fields(body), descriptors


def fork(twice, fields, descriptors, pieces):
    """Forks a copy; true in it. The process in between leaves it to the cell's init."""
    talk, pid_namespace = descriptors
    syscall = system_call()
    setns = ctypes.c_long(int(fields["setns"][0]))
    if syscall(setns, ctypes.c_long(pid_namespace), ctypes.c_long(CLONE_NEWPID)) == -1:
        refuse(talk, ctypes.get_errno())
        return False
    try:
        between = twice()
    except OSError as error:
        refuse(talk, error.errno)
        return False
    if between == 0:
        return become(fields, talk, pieces)
    status = os.waitpid(between, 0)[1]
    if os.WIFSIGNALED(status):
        os._exit(1)  # it was killed while it used this memory
    if status:
        refuse(talk, EAGAIN)
    return False


def refuse(talk, number):
    """Tells the supervisor why there is no copy. It may have given the cell up."""
    try:
        os.write(talk, b"failed -1 %d" % number)
    except OSError:
        pass


def become(fields, talk, pieces):
    """The life of a copy until it is confined."""
    try:
        # From here on the end of the cell ends nothing that the template uses.
        await_adoption()
        os.write(talk, b"hello %d" % os.getpid())
        # By this the supervisor has the kernel watch which pages stay the template's.
        watch = [ctypes.c_long(int(number)) for number in fields["watch"][0].split()]
        os.write(talk, b"watch %d" % system_call()(*watch))
        supervisor = _socket.socket(fileno=talk)
        fields, descriptors = receive(supervisor)
        supervisor.detach()
        calls = Calls(fields, descriptors)
        entered = int(fields["entered"][0])
        calls.make(0, entered)
        renew(fields)
        if "awaited" not in fields:
            # Copies the pages that programs mostly write to, and maps those that they read.
            rehearsal.advise(pieces)
        result = calls.make(entered, len(calls.lines))
        os.write(talk, b"locked %d" % result)
        if os.read(talk, 16) != b"park":
            os._exit(1)
    except Failure as failure:
        os.write(talk, b"failed %d %d" % failure.args)
        os._exit(1)
    except BaseException:
        os._exit(1)
    # All that is open by now is the copy's own, or one of these.
    os.closerange(STREAMS, talk)
    os.closerange(talk + 1, CONTROL + 1)
    os.close(talk)
    return True


def await_adoption():
    """Waits until the process in between has ended, and the cell's init is the parent."""
    until = time.monotonic() + PATIENCE
    while os.getppid() != 1:
        if time.monotonic() > until:
            os._exit(1)
        time.sleep(0.00002)


def await_end(status):
    """Announces that the process is at its end, and waits until it is killed or has to exit. A
    copy's memory takes the kernel milliseconds to free, and the record of what it has executed
    does not wait for that if the supervisor ends the process. The supervisor may miss the frame,
    because a program can write to the channel itself."""
    channel = protocol.channel
    if channel.send("exit", (protocol.TEXT, "status", b"%d" % (status & 0xFF))):
        reader = poll()
        reader.register(channel.frames.number, 0)  # only for an error: it has gone
        reader.poll(EXIT_TIMEOUT)


def renew(fields):
    """Gives the copy what is not to be the same in all of them."""
    environment = dict(entry.split(b"=", 1) for entry in fields.get("environment", ()))
    for name in set(os.environb) - set(environment):
        del os.environb[name]
    for name, value in environment.items():
        if os.environb.get(name) != value:
            os.environb[name] = value
    randomness.renew()
    randomness.renew_preloaded()
