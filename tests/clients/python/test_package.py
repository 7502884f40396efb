"""The package by itself, with the executable that it carries."""

import asyncio
import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import cellblock
from cellblock import aio, display
from cellblock.process import flags


def setUpModule():
    global server
    server = cellblock.Server(rootfs="host")
    unittest.addModuleCleanup(server.close)


class Runs(unittest.TestCase):
    def test_a_run_has_output_a_value_and_files(self):
        code = "import sys\nprint(sys.argv[1:], open('a').read(), input())\nopen('b', 'w')\n6 * 7"
        run = server.run(code, args=["x"], stdin="in", files={"a": b"text"}).check()
        self.assertEqual(run.stdout, "['x'] text in\n")
        self.assertEqual((run.value, run.outcome, run.exit_code), ("42", "ok", 0))
        self.assertEqual([file.path for file in run.files], ["b"])

    def test_bytes_stay_bytes(self):
        code = "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read() + open('f', 'rb').read())"
        run = server.run(code, stdin=b"\xff\0", files={"f": b"\xfe"})
        self.assertEqual(run.stdout_bytes, b"\xff\0\xfe")

    def test_an_exception_is_an_error_with_its_traceback(self):
        run = server.run("1 / 0")
        self.assertEqual(run.error.name, "ZeroDivisionError")
        self.assertFalse(run.ok)
        with self.assertRaises(cellblock.CodeError) as raised:
            run.check()
        self.assertIs(raised.exception.run, run)

    def test_limits_can_be_lower(self):
        run = server.run("while True: pass", wall=0.3)
        self.assertEqual(run.outcome, "timeout")

    def test_programs_and_other_languages_run(self):
        self.assertEqual(server.exec(["echo", "a b"]).stdout, "a b\n")
        self.assertEqual(server.run("echo $((6 * 7))", "bash").stdout, "42\n")

    def test_events_come_before_the_result(self):
        stream = server.stream("print('a')\n3")
        kinds = [event.kind for event in stream]
        self.assertEqual(kinds, ["started", "stdout", "result"])
        self.assertEqual(stream.result().value, "3")

    def test_a_stream_can_be_cancelled(self):
        stream = server.stream("print(1, flush=True)\nwhile True: pass")
        for event in stream:
            if event.kind == "stdout":
                stream.cancel()
        # Its cell has ended: nothing is left at work.
        for _ in range(1200):
            if server.status()["cells"]["used"] == 0:
                break
            time.sleep(0.1)
        self.assertEqual(server.status()["cells"]["used"], 0)

    def test_the_default_server_serves_threads(self):
        script = "import cellblock; print(cellblock.run('6 * 7').value)"
        found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        self.assertEqual(found.stdout, "42\n", found.stderr)
        values = []
        threads = [
            threading.Thread(target=lambda n=n: values.append(server.run(f"{n} * 2").value))
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(map(int, values)), [0, 2, 4, 6, 8, 10, 12, 14])


class Contexts(unittest.TestCase):
    def test_variables_are_kept_and_exceptions_keep_them(self):
        with server.context() as context:
            context.run("x = 20")
            context.run("1 / 0")
            execution = context.run("x + 1")
        self.assertEqual((execution.value, execution.state, execution.number), ("21", "kept", 3))
        with self.assertRaises(cellblock.NotFound):
            context.run("x")

    def test_checkpoints_and_forks(self):
        with server.context(forkable=True) as context:
            context.run("x = 1")
            first = context.checkpoint()
            context.files.write("new", "text")
            self.assertEqual([file.path for file in context.diff(first)], ["new"])
            context.run("x = 2")
            one, two = context.fork(2)
            self.assertEqual([one.run("x").value, two.run("x + 1").value], ["2", "3"])
            context.rewind(first)
            self.assertEqual(context.state, "restored")
            self.assertEqual(context.run("x").value, "1")
            self.assertEqual(context.files.list(), [])
            context.forget(first)
            with self.assertRaises(cellblock.CellblockError):
                context.rewind(first)
            one.delete(), two.delete()

    def test_many_forks(self):
        """For a plain user, each cell is looked at while it executes its interpreter."""
        with server.context(forkable=True) as context:
            context.run("x = 1")
            for _ in range(10):
                for branch in context.fork(2):
                    with branch:
                        self.assertEqual(branch.run("x").value, "1")

    def test_a_context_that_cannot_be_forked_says_so(self):
        with server.context() as context:
            with self.assertRaises(cellblock.CellblockError) as raised:
                context.fork()
        self.assertTrue(raised.exception.hint or raised.exception.message)

    def test_an_interrupt_keeps_the_variables(self):
        with server.context() as context:
            context.run("x = 1")
            stream = context.stream("print(1, flush=True)\nwhile True: pass")
            next(event for event in stream if event.kind == "stdout")
            self.assertTrue(context.interrupt())
            self.assertEqual(stream.result().error.name, "KeyboardInterrupt")
            self.assertEqual(context.run("x").value, "1")
            self.assertFalse(context.interrupt())

    def test_ctrl_c_here_interrupts_the_code_there(self):
        # A job in the background is started with this signal ignored.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        with server.context() as context:
            context.run("x = 1")
            timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
            with self.assertRaises(KeyboardInterrupt):
                timer.start()
                context.run("while True: pass")
            timer.join()
            self.assertEqual(context.run("x").value, "1")

    def test_a_cancelled_execution_that_waits_never_begins(self):
        with server.context() as context:
            running = context.stream("import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nx = 1")
            waiting = context.stream("x = 2")
            waiting.cancel()
            context.exec(["touch", "go"])
            self.assertTrue(running.result().ok)
            self.assertEqual(context.run("x").value, "1")

    def test_restart_and_describe_and_list(self):
        with server.context(label="here", id="by-name") as context:
            context.run("x = 1")
            self.assertEqual(context.describe()["variables"][0]["name"], "x")
            self.assertEqual([one["context"] for one in server.contexts("here")], ["by-name"])
            self.assertEqual(server.find("by-name").run("x").value, "1")
            context.restart()
            self.assertEqual(context.state, "lost")
            self.assertFalse(context.run("x").ok)

    def test_files_are_written_read_listed_and_removed(self):
        with server.context() as context:
            content = bytes(range(256)) * 20000
            context.files.write("d/a", content)
            context.files.write("run.sh", "#!/bin/sh\n", executable=True)
            self.assertEqual(context.files.read("d/a"), content)
            found = {entry.path: entry.size for entry in context.files.list(recursive=True)}
            self.assertEqual(found["d/a"], len(content))
            self.assertEqual(context.run("import os; os.access('run.sh', os.X_OK)").value, "True")
            context.files.remove("d")
            with self.assertRaises(cellblock.NotFound):
                context.files.read("d/a")
            with self.assertRaises(cellblock.TooLong):
                context.files.write("large", b"\xff" * (14 << 20))
            # The connection goes on.
            self.assertEqual(context.run("1").value, "1")

    def test_watches_report_changes(self):
        with server.context() as context:
            with context.files.watch() as watch:
                context.files.write("new", "")
                paths = set()
                for event in watch:
                    paths.update(change["path"] for change in event.raw["changes"])
                    if "new" in paths:
                        break
            self.assertEqual([event.kind for event in watch][-1], "watch_ended")


class Sandboxes(unittest.TestCase):
    def setUp(self):
        self.sandbox = cellblock.Sandbox(server=server)
        self.addCleanup(self.sandbox.close)

    def test_programs_have_input_variables_a_directory_and_a_status(self):
        outcome = self.sandbox.exec("cat; echo $A; pwd; echo err >&2; exit 3", input=b"\xff\n", env={"A": "b c"}, cwd="/tmp")
        self.assertEqual((outcome.status, outcome.stdout, outcome.stderr), (3, b"\xff\nb c\n/tmp\n", b"err\n"))
        self.assertEqual(self.sandbox.exec(["printf", "%s|", "a b", ""]).stdout, b"a b||")
        self.assertEqual(self.sandbox.exec("kill -TERM $$", timeout=60).status, 143)
        self.assertEqual(self.sandbox.exec("echo a; echo b >&2", together=True).stdout, b"a\nb\n")
        large = bytes(range(256)) * 20000
        self.assertEqual(self.sandbox.exec(["cat"], input=large).stdout, large)

    def test_input_that_a_program_does_not_read_is_dropped(self):
        self.assertEqual(self.sandbox.exec(["true"], input=bytes(8 << 20)).status, 0)

    def test_output_is_kept_up_to_a_bound(self):
        outcome = self.sandbox.exec("yes | head -c 100000", output=10)
        self.assertEqual((outcome.stdout, outcome.is_cut), (b"y\n" * 5, True))
        self.assertFalse(self.sandbox.exec("printf 0123456789", output=10).is_cut)

    def test_programs_that_cannot_be_started_are_errors_of_the_system(self):
        with self.assertRaises(FileNotFoundError):
            self.sandbox.exec(["no-such-program"])
        with self.assertRaises(PermissionError):
            self.sandbox.exec(["/etc/passwd"])
        with self.assertRaises(FileNotFoundError):
            self.sandbox.exec("true", cwd="/no-such-directory")

    def test_a_program_that_takes_too_long_is_killed_with_its_group(self):
        with self.assertRaises(TimeoutError) as raised:
            self.sandbox.exec("printf out; printf err >&2; sleep 1234 & sleep 1234", timeout=0.5)
        error = raised.exception
        self.assertEqual((error.stdout, error.stderr, error.is_cut), (b"out", b"err", False))
        self.assertEqual(self.sandbox.exec("ps -e -o args | grep -c '[s]leep 1234'").stdout, b"0\n")

    def test_files_are_anywhere(self):
        for path in ("a", "d/b c", "/tmp/x/y", "/workspace/-n"):
            self.sandbox.write(path, b"\0\xff")
            self.sandbox.write(path, b"more", append=True)
            self.assertEqual(self.sandbox.read(path), b"\0\xffmore")
        self.sandbox.write("a", b"")
        self.assertEqual(self.sandbox.read("a"), b"")
        self.assertEqual(self.sandbox.read("d/b c", 6), b"\0\xffmore")
        with self.assertRaises(ValueError):
            self.sandbox.read("d/b c", 5)

    def test_errors_of_files_are_those_of_the_system(self):
        wrong = (
            (IsADirectoryError, self.sandbox.read, "/tmp"),
            (FileNotFoundError, self.sandbox.read, "no"),
            (IsADirectoryError, lambda path: self.sandbox.write(path, b""), "/tmp"),
            (NotADirectoryError, lambda path: self.sandbox.write(path, b""), "/etc/passwd/x"),
            (PermissionError, lambda path: self.sandbox.write(path, b""), "/usr/x"),
            (OSError, lambda path: self.sandbox.write(path, b""), "/tmp/" + "n" * 300),
        )
        for kind, call, path in wrong:
            with self.subTest(path=path), self.assertRaises(kind) as raised:
                call(path)
            self.assertEqual(raised.exception.filename, path)
        self.sandbox.exec("echo > secret; chmod 0 secret")
        with self.assertRaises(PermissionError):
            self.sandbox.read("secret")

    def test_a_sandbox_whose_cell_is_lost_begins_anew(self):
        self.sandbox.write("kept", b"1")
        def restart():
            while not server._call("process.list", context=self.sandbox.id)["processes"]:
                time.sleep(0.05)
            server._call("context.restart", context=self.sandbox.id)

        end = threading.Thread(target=restart)
        end.start()
        with self.assertRaises(cellblock.Lost):
            self.sandbox.exec("sleep 4000")
        end.join()
        self.assertEqual(self.sandbox.read("kept"), b"1")

    def test_after_its_end_it_is_not_found(self):
        self.sandbox.close()
        with self.assertRaises(cellblock.NotFound):
            self.sandbox.exec("true")


class Servers(unittest.TestCase):
    def test_a_block_leaves_no_process_no_thread_and_no_descriptor(self):
        def left():
            children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(os.getpid())], capture_output=True)
            # The one of ps itself is gone, and so are its pipes.
            return len(children.stdout.split()), threading.active_count(), len(os.listdir("/proc/self/fd"))

        before = left()
        for _ in range(3):
            with cellblock.Server(rootfs="host") as own:
                with own.context() as context, cellblock.Sandbox(server=own) as sandbox:
                    context.run("1")
                    sandbox.exec("sleep 4000 >/dev/null 2>&1 &")
        self.assertEqual(left(), before)

    def test_what_a_killed_server_did_is_lost_and_the_default_one_begins_anew(self):
        script = """if True:
            import cellblock, os, signal
            context = cellblock.Context()
            stream = context.stream("print('on', flush=True); import time; time.sleep(1000)")
            next(event for event in stream if event.kind == "stdout")
            os.kill(cellblock.default_server()._process.pid, signal.SIGKILL)
            try:
                stream.result()
            except cellblock.Lost as error:
                print(error.code)
            print(cellblock.run("6 * 7").value)
        """
        found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        self.assertEqual(found.stdout, "disconnected\n42\n", found.stderr)

    def test_wrong_options_are_an_error_with_the_reason(self):
        broken = cellblock.Server(memory="nonsense")
        with self.assertRaisesRegex(cellblock.Disconnected, "memory"):
            broken.run("1")
        broken.close()

    def test_a_killed_server_is_an_error_and_not_a_hang(self):
        doomed = cellblock.Server(rootfs="host")
        context = doomed.context()
        stream = context.stream("print(1, flush=True)\nwhile True: pass")
        next(event for event in stream if event.kind == "stdout")
        os.kill(doomed._process.pid, signal.SIGKILL)
        with self.assertRaises(cellblock.Disconnected):
            stream.result()
        with self.assertRaises(cellblock.Disconnected):
            doomed.run("1")
        doomed.close()

    def test_without_room_the_error_says_when_to_try_again(self):
        small = cellblock.Server(rootfs="host", max_cells=1, queue_wait="100ms")
        with contextlib.closing(small), small.context():
            with self.assertRaises(cellblock.Busy) as raised:
                small.run("1")
            self.assertGreater(raised.exception.retry_after, 0)

    def test_a_socket_serves_several_clients(self):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "socket")
            command = [cellblock.find_executable(), "serve", "--rootfs=host", f"--listen=unix:{path}"]
            listening = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            try:
                for _ in range(1200):
                    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as found:
                        found.connect(str(path))
                        break
                    time.sleep(0.05)
                before = len(os.listdir("/proc/self/fd"))
                with cellblock.Server.connect(path) as one, cellblock.Server.connect(path) as two:
                    kept = one.context(keep=True)
                    kept.run("x = 1")
                    own = one.context()
                    self.assertEqual(two.find(kept.id).run("x").value, "1")
                with cellblock.Server.connect(path) as three:
                    self.assertEqual([c["context"] for c in three.contexts()], [kept.id])
                    with self.assertRaises(cellblock.NotFound):
                        three.find(own.id)
                self.assertEqual(len(os.listdir("/proc/self/fd")), before)
            finally:
                listening.terminate()
                listening.wait()

    def test_options_are_flags(self):
        options = {"net_unchecked": True, "warm": ["python:2", "blank:1"], "keep": None, "a": False}
        self.assertEqual(flags(options), ["--net-unchecked", "--warm=python:2", "--warm=blank:1"])

    def test_the_executable_is_found_in_its_order(self):
        own = cellblock.find_executable()
        self.assertEqual(Path(own).parent.name, "bin")
        with tempfile.TemporaryDirectory() as directory:
            other = Path(directory, "cellblock")
            other.write_text("")
            with self.assertRaises(cellblock.ExecutableNotFound):
                cellblock.find_executable(other)
            other.chmod(0o755)
            self.assertEqual(cellblock.find_executable(other), str(other))
            os.environ["CELLBLOCK"] = str(other)
            try:
                self.assertEqual(cellblock.find_executable(), str(other))
            finally:
                del os.environ["CELLBLOCK"]
        shown = subprocess.run([sys.executable, "-m", "cellblock", "--version"], capture_output=True)
        self.assertEqual(shown.stdout.decode().split()[1], cellblock.__version__)

    def test_errors_can_be_sent_between_processes(self):
        error = cellblock.Busy("too much", retry_after=2.5, hint="wait")
        copy = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(copy), str(copy), copy.retry_after), (type(error), str(error), 2.5))


class Coroutines(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.server = await aio.Server(rootfs="host").start()
        self.addAsyncCleanup(self.server.close)

    async def test_the_same_works_with_an_event_loop(self):
        runs = await asyncio.gather(*(self.server.run(f"{n} + 1") for n in range(4)))
        self.assertEqual([run.value for run in runs], ["1", "2", "3", "4"])
        async with await self.server.context(forkable=True) as context:
            await context.run("x = 1")
            checkpoint = await context.checkpoint()
            [branch] = await context.fork()
            self.assertEqual((await branch.run("x")).value, "1")
            await context.run("x = 2")
            await context.rewind(checkpoint)
            self.assertEqual((await context.run("x")).value, "1")
            await context.files.write("a", b"\0")
            self.assertEqual(await context.files.read("a"), b"\0")
            self.assertEqual([entry.path for entry in await context.files.list()], ["a"])
            stream = context.stream("print('out')\n5")
            texts = [event.text async for event in stream if event.kind == "stdout"]
            self.assertEqual((texts, (await stream.result()).value), (["out\n"], "5"))
            watch = await context.files.watch()
            await context.files.write("b", "")
            async for event in watch:
                self.assertEqual(event.kind, "files_changed")
                break
            await watch.close()

    async def test_a_cancelled_task_interrupts_its_code(self):
        async with await self.server.context() as context:
            await context.run("x = 1")
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(context.run("while True: pass"), 0.5)
            self.assertEqual((await context.run("x")).value, "1")

    async def test_errors_have_their_codes(self):
        with self.assertRaises(cellblock.NotFound):
            await self.server.find("none")
        with self.assertRaises(cellblock.BadParams):
            await self.server.context(idle="nonsense")

    async def test_a_cancelled_command_is_killed(self):
        async with await cellblock.AsyncSandbox.open(self.server) as sandbox:
            running = "ps -e -o args | grep -c '^sleep 4321'"
            task = asyncio.create_task(sandbox.exec("sleep 4321 & sleep 4321"))
            while (await sandbox.exec(running)).stdout != b"2\n":
                await asyncio.sleep(0.05)
            task.cancel()
            # Also one whose start has no answer yet.
            early = asyncio.create_task(sandbox.exec("sleep 4321"))
            await asyncio.sleep(0)
            early.cancel()
            for cancelled in (task, early):
                with self.assertRaises(asyncio.CancelledError):
                    await cancelled
            for _ in range(1200):
                left = await sandbox.exec(running)
                if left.stdout == b"0\n":
                    break
                await asyncio.sleep(0.05)
            self.assertEqual(left.stdout, b"0\n")

    async def test_a_context_runs_programs_beside_code(self):
        async with await self.server.context() as context:
            running = asyncio.create_task(context.run("import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n'gone on'"))
            outcome = await context.exec(["touch", "go"])
            self.assertEqual(outcome.status, 0)
            self.assertEqual((await running).value, "'gone on'")


class Display(unittest.TestCase):
    """What a cell produced is hostile to the notebook that shows it."""

    def test_html_is_in_a_frame_without_scripts(self):
        shown = display.of_result({"text/html": "<script>alert(1)</script>\"'><b>"}, "")
        self.assertTrue(shown.startswith('<iframe sandbox srcdoc="'))
        self.assertNotIn("<script", shown)
        self.assertEqual(shown.count('"'), 4)

    def test_what_pretends_to_be_a_picture_is_text(self):
        shown = display.of_result({"image/png": '"><script>alert(1)</script>'}, "<b>")
        self.assertEqual(shown, '<pre style="white-space:pre-wrap;margin:0;">&lt;b&gt;</pre>')

    def test_forms_that_viewers_interpret_are_left_out(self):
        hostile = {
            "application/javascript": "alert(1)",
            "application/vnd.vega.v5+json": {},
            "text/markdown": "<img src=x onerror=alert(1)>",
            "text/latex": "$\\href{javascript:alert(1)}{x}$",
        }
        self.assertEqual(set(display.bundle(hostile, "text")), {"text/plain", "text/html"})

    def test_svg_is_a_picture(self):
        shown = display.of_result({"image/svg+xml": "<svg onload='alert(1)'/>"}, "")
        self.assertTrue(shown.startswith('<img src="data:image/svg+xml;base64,'))

    def test_results_and_runs_display_themselves(self):
        code = "class P:\n def _repr_html_(self): return '<i>x</i>'\n"
        code += " def _repr_png_(self): return b'\\x89PNG'\nprint('<out>')\nP()"
        run = server.run(code)
        [result] = run.results
        self.assertEqual(result._repr_png_(), b"\x89PNG")
        self.assertIn("image/png", result._repr_mimebundle_())
        shown = run._repr_html_()
        self.assertIn("&lt;out&gt;", shown)
        self.assertIn("<img", shown)
        self.assertIn("ZeroDivisionError", server.run("1 / 0")._repr_mimebundle_()["text/plain"])


if __name__ == "__main__":
    unittest.main()
