"""E2B's own Python SDKs against a server: e2b_sync.py (where it is, by the SDK's variables)"""

import io
import threading
import time
import urllib.request

from e2b import (
    CommandExitException,
    NotFoundException,
    PtySize,
    SandboxException,
    SandboxQuery,
    SandboxState,
)
from e2b_code_interpreter import Sandbox


def raises(kind, function, part=""):
    try:
        function()
    except kind as error:
        assert part in str(error), error
        return error
    raise AssertionError(f"no {kind.__name__}")


def until(is_so):
    for _ in range(1200):
        if is_so():
            return
        time.sleep(0.1)
    raise AssertionError("waited in vain")


def lives():
    sandbox = Sandbox.create(timeout=60, metadata={"user": "a b&c", "n": "1"})
    other = Sandbox.create("base", timeout=60, metadata={"n": "2"})
    assert sandbox.is_running()
    info = sandbox.get_info()
    assert (info.sandbox_id, info.template_id) == (sandbox.sandbox_id, "code-interpreter-v1")
    assert info.metadata == {"user": "a b&c", "n": "1"}, info
    assert 50 < (info.end_at - info.started_at).total_seconds() < 70, info
    sandbox.set_timeout(120)
    assert (sandbox.get_info().end_at - info.end_at).total_seconds() > 50

    def ids(**query):
        return [each.sandbox_id for each in Sandbox.list(query=SandboxQuery(**query)).next_items()]

    assert set(ids()) >= {sandbox.sandbox_id, other.sandbox_id}
    assert ids(metadata={"user": "a b&c"}) == [sandbox.sandbox_id], ids(metadata={"user": "a b&c"})
    assert ids(template="base") == [other.sandbox_id]
    assert sandbox.sandbox_id in ids(state=[SandboxState.RUNNING]) and not ids(state=[SandboxState.PAUSED])
    pages = Sandbox.list(limit=1)
    first = pages.next_items()
    assert len(first) == 1 and pages.has_next
    assert first[0].sandbox_id != pages.next_items()[0].sandbox_id
    assert sandbox.get_metrics()[0].mem_used > 0
    again = Sandbox.connect(sandbox.sandbox_id)
    assert again.run_code("40 + 2").text == "42"
    assert sandbox.kill() and not sandbox.kill() and not sandbox.is_running()
    raises(NotFoundException, sandbox.get_info)
    raises(SandboxException, lambda: sandbox.run_code("1"))
    other.kill()
    raises(SandboxException, lambda: Sandbox.create("no-such-template"), "not found")
    short = Sandbox.create(timeout=1)
    until(lambda: not short.is_running())


def code(sandbox):
    seen = []
    ran = sandbox.run_code(
        "import sys; print('out'); print('err', file=sys.stderr); 6 * 7",
        on_stdout=lambda message: seen.append(message.line),
        on_stderr=lambda message: seen.append(message.line),
        on_result=lambda result: seen.append(result.text),
    )
    assert ran.text == "42" and ran.error is None, ran
    assert (ran.logs.stdout, ran.logs.stderr) == (["out\n"], ["err\n"]), ran
    assert sorted(seen) == ["42", "err\n", "out\n"], seen
    before = ran.execution_count
    raised = sandbox.run_code("1 / 0")
    assert raised.execution_count == before + 1
    assert (raised.error.name, raised.error.value) == ("ZeroDivisionError", "division by zero")
    assert "Traceback" in raised.error.traceback
    assert sandbox.run_code("'text'").text == "text"
    shown = sandbox.run_code("from IPython.display import HTML; HTML('<b>x</b>')").results[0]
    assert shown.html == "<b>x</b>" and shown.is_main_result and shown.extra == {}, shown
    assert sandbox.run_code("import os; os.environ['A']", envs={"A": "b"}).text == "b"
    assert sandbox.run_code("os.environ.get('A', 'gone')").text == "gone"
    # A client that does not wait any more has its code interrupted.
    sandbox.run_code("import time\nx = 5")
    raises(Exception, lambda: sandbox.run_code("time.sleep(100)", timeout=2))
    assert sandbox.run_code("x").text == "5"
    assert sandbox.run_code("echo $((6 * 7))", language="bash").logs.stdout == ["42\n"]
    # Code that is indented as a whole, with a line of a notebook.
    assert sandbox.run_code("\n    !pwd\n    ").logs.stdout == ["/home/user\n"]
    assert sandbox.run_code("pwd", language="bash").logs.stdout == ["/home/user\n"]
    # All languages of a sandbox, its commands and its files have one file system.
    sandbox.run_code("open('a.txt', 'w').write('from python')")
    assert sandbox.run_code("cat a.txt", language="bash").logs.stdout == ["from python"]
    read = "require('fs').readFileSync('a.txt', 'utf8')"
    assert sandbox.run_code(read, language="js").text == "from python"
    sandbox.run_code("require('fs').writeFileSync('b.txt', 'from node')", language="js")
    assert sandbox.files.read("b.txt") == "from node"
    assert sandbox.commands.run("cat b.txt").stdout == "from node"


def contexts(sandbox):
    languages = {context.language for context in sandbox.list_code_contexts()}
    assert languages >= {"python", "javascript"}, languages
    context = sandbox.create_code_context(cwd="/tmp")
    assert sandbox.list_code_contexts()[-1].id == context.id
    assert sandbox.run_code("import os; x = 1; os.getcwd()", context=context).text == "/tmp"
    assert sandbox.run_code("x", context=context).text == "1"
    assert sandbox.run_code("globals().get('x', 'none')").text != "1"
    sandbox.restart_code_context(context)
    assert sandbox.run_code("x", context=context).error.name == "NameError"
    assert sandbox.run_code("os.getcwd()" , context=context).error.name == "NameError"
    assert sandbox.run_code("import os; os.getcwd()", context=context).text == "/tmp"
    sandbox.remove_code_context(context)
    raises(Exception, lambda: sandbox.run_code("1", context=context), "not found")
    raises(SandboxException, lambda: sandbox.create_code_context(cwd="/no/such"), "cwd")
    # A directory of the user's is made.
    context = sandbox.create_code_context(cwd="/home/user/made/here")
    shown = sandbox.run_code("import os; os.getcwd()", context=context).text
    assert shown == context.cwd == "/home/user/made/here", shown
    sandbox.remove_code_context(context)


def files(sandbox):
    files = sandbox.files
    written = files.write("a/b.txt", "text")
    assert (written.path, written.name) == ("/home/user/a/b.txt", "b.txt"), written
    assert files.read("a/b.txt") == files.read("/home/user/a/b.txt") == "text"
    binary = bytes(range(256)) * 40000
    files.write("big", binary)
    assert bytes(files.read("big", format="bytes")) == binary
    files.write("streamed", io.BytesIO(binary))
    assert b"".join(files.read("streamed", format="stream")) == binary
    both = files.write_files([{"path": "one", "data": "1"}, {"path": "d/two", "data": b"2"}])
    assert [each.path for each in both] == ["/home/user/one", "/home/user/d/two"]
    assert sandbox.run_code("open('d/two').read()").text == "2"
    sandbox.run_code("import os; os.symlink('one', 'link'); os.chmod('one', 0o600)")
    assert files.exists("one") and not files.exists("none")
    info = files.get_info("one")
    assert (info.size, info.mode, info.permissions) == (1, 0o600, "-rw-------"), info
    assert files.get_info("link").symlink_target == "one"
    names = {entry.name for entry in files.list("/home/user")}
    assert {"a", "big", "one", "d", "link"} <= names and "two" not in names, names
    assert "two" in {entry.name for entry in files.list("/home/user", depth=2)}
    assert files.make_dir("new/deep") and not files.make_dir("new/deep")
    assert files.rename("one", "moved/one").path == "/home/user/moved/one"
    assert files.read("moved/one") == "1" and not files.exists("one")
    files.remove("moved")
    files.remove("moved")
    raises(NotFoundException, lambda: files.read("one"))
    raises(NotFoundException, lambda: files.list("none"))
    raises(SandboxException, lambda: files.read("/etc/passwd"), "not below")
    raises(SandboxException, lambda: files.list("big"), "not a directory")
    files.write("zipped", "x" * 100_000, gzip=True)
    assert files.read("zipped", gzip=True) == files.read("zipped") == "x" * 100_000


def links(sandbox):
    sandbox.files.write("signed", "here")
    with urllib.request.urlopen(sandbox.download_url("signed")) as answer:
        assert answer.read() == b"here"
    late = sandbox.download_url("signed", use_signature_expiration=-10)
    raises(OSError, lambda: urllib.request.urlopen(late), "401")
    forged = sandbox.download_url("signed").replace("path=signed", "path=a%2Fb.txt")
    raises(OSError, lambda: urllib.request.urlopen(forged), "401")


def watches(sandbox):
    sandbox.files.make_dir("watched/below")
    plain = sandbox.files.watch_dir("watched")
    deep = sandbox.files.watch_dir("watched", recursive=True)
    sandbox.files.write("watched/f", "1")
    sandbox.files.write("watched/below/g", "1")

    def sees(handle, name, seen):
        seen |= {(event.name, event.type.name) for event in handle.get_new_events()}
        return (name, "CREATE") in seen

    shallow = set()
    until(lambda: sees(deep, "below/g", set()))
    until(lambda: sees(plain, "f", shallow))
    assert not any(name.startswith("below/") for name, _ in shallow), shallow
    # A change is reported to the client's first poll after it, unless the host is busy.
    plain.get_new_events()
    sandbox.files.write("watched/f", "2")
    later = set()
    until(lambda: later.update((event.name, event.type.name) for event in plain.get_new_events()) or later)
    assert later == {("f", "WRITE")}, later
    plain.stop()
    deep.stop()
    raises(NotFoundException, lambda: sandbox.files.watch_dir("none"))


def commands(sandbox):
    commands = sandbox.commands
    seen = []
    ran = commands.run("echo out; echo err >&2", on_stdout=seen.append)
    assert (ran.stdout, ran.stderr, ran.exit_code, seen) == ("out\n", "err\n", 0, ["out\n"])
    failed = raises(CommandExitException, lambda: commands.run("echo x; exit 3"))
    assert (failed.exit_code, failed.stdout) == (3, "x\n"), failed
    sandbox.files.write("here", "x")
    assert "here" in commands.run("ls").stdout
    sandbox.files.make_dir("cwd")
    assert commands.run("pwd", cwd="/home/user/cwd").stdout == "/home/user/cwd\n"
    assert commands.run("pwd; cd; pwd").stdout == "/home/user\n" * 2
    assert commands.run("echo $A", envs={"A": "b"}).stdout == "b\n"
    reader = commands.run("cat", background=True, stdin=True)
    assert reader.pid in [each.pid for each in commands.list()]
    commands.send_stdin(reader.pid, "in")
    commands.close_stdin(reader.pid)
    assert reader.wait().stdout == "in"
    sleeper = commands.run("sleep 1000", background=True)
    assert commands.kill(sleeper.pid)
    # When the answer has come, the command has ended.
    raises(CommandExitException, lambda: commands.run(f"kill -0 {sleeper.pid}"))
    raises(CommandExitException, sleeper.wait)
    assert not commands.kill(sleeper.pid)
    writer = commands.run("read line; echo late", background=True, stdin=True)
    writer.disconnect()
    again = commands.connect(writer.pid)
    commands.send_stdin(writer.pid, "\n")
    assert again.wait().stdout == "late\n"
    raises(Exception, lambda: commands.run("sleep 1000", timeout=2))
    until(lambda: not any("sleep 1000" in each.args for each in commands.list()))
    raises(NotFoundException, lambda: commands.connect(99999))


def terminals(sandbox):
    terminal = sandbox.pty.create(PtySize(rows=24, cols=80))
    sandbox.pty.resize(terminal.pid, PtySize(rows=30, cols=100))
    sandbox.pty.send_stdin(terminal.pid, b"stty size; exit\n")
    seen = bytearray()
    terminal.wait(on_pty=seen.extend)
    assert b"30 100" in seen, seen
    other = sandbox.pty.create(PtySize(rows=24, cols=80))
    assert sandbox.pty.kill(other.pid)


def ends():
    """Calls that go on when the sandbox ends break off, and the SDK says why."""
    for begin in [
        lambda begun: sandbox.run_code("import time; print('on', flush=True); time.sleep(100)", on_stdout=begun),
        lambda begun: sandbox.commands.run("echo on; sleep 100", timeout=0, on_stdout=begun),
    ]:
        sandbox = Sandbox.create(timeout=60)
        killer = threading.Thread(target=sandbox.kill)
        raises(Exception, lambda: begin(lambda _: killer.start()), "sandbox was killed")
        killer.join()


def pauses():
    sandbox = Sandbox.create(timeout=60)
    sandbox.run_code("x = [1, 2]")
    sandbox.files.write("kept", "1")
    sandbox.pause()
    assert not sandbox.is_running()
    assert Sandbox.list(query=SandboxQuery(state=[SandboxState.PAUSED])).next_items()
    sandbox.connect()
    assert sandbox.run_code("x").text == "[1, 2]" and sandbox.files.read("kept") == "1"
    branches = sandbox.fork(count=2)
    sandbox.run_code("x.append(3)")
    for branch in branches:
        assert branch.run_code("x").text == "[1, 2]", branch
        assert branch.files.read("kept") == "1"
        branch.kill()
    sandbox.kill()
    own = Sandbox.create(timeout=2, lifecycle={"on_timeout": "pause", "auto_resume": True})
    own.run_code("y = 7")
    until(lambda: own.get_info().state == SandboxState.PAUSED)
    until(lambda: own.run_code("y").text == "7" and own.get_info().state == SandboxState.RUNNING)
    own.kill()


if __name__ == "__main__":
    lives()
    print("e2b: lives: ok")
    sandbox = Sandbox.create(timeout=300)
    for scenario in [code, contexts, files, links, watches, commands, terminals]:
        scenario(sandbox)
        print(f"e2b: {scenario.__name__}: ok")
    sandbox.kill()
    ends()
    print("e2b: ends: ok")
    pauses()
    print("e2b: pauses: ok")
