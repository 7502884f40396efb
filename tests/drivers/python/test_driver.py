"""Tests of the Python driver's modules: `python3 -m unittest` with PYTHONPATH at
crates/languages/src/python."""

import glob
import importlib.util
import os
import subprocess
import sys
import tempfile
import types
import unittest

from cellblock_driver import display, ending, figures, immortal, magics, output, protocol, results, rich, tables
from cellblock_driver.source import Source, is_coroutine


def encoded(*fields):
    parts = [
        form + bytes([len(key)]) + len(value).to_bytes(4, "big") + key + value
        for form, key, value in fields
    ]
    body = b"".join(parts)
    return len(body).to_bytes(4, "big") + body


class End(unittest.TestCase):
    """Streams of pyarrow's, which pandas loads, write what they hold when they are freed."""

    def setUp(self):
        ending.survey()

    def tearDown(self):
        sys.modules.pop("helper", None)

    def imported(self, file):
        module = sys.modules["helper"] = types.ModuleType("helper")
        module.__file__ = file
        return ending.names_holder([b"import helper"])

    def test_code_that_names_the_package_may_have_some(self):
        self.assertFalse(ending.names_holder([b"import pandas", b"pandas.DataFrame()"]))
        self.assertTrue(ending.names_holder([b"import pandas", b"import pyarrow as pa"]))

    def test_code_that_executes_other_code_may_have_some(self):
        for line in "%run job.py", "%timeit f()":
            code = magics.transform(line.encode()).encode()
            self.assertTrue(ending.names_holder([code]), line)
        for code in (
            b"exec(open('job.py').read())",
            b"import runpy",
            b"importlib.import_module(name)",
            b"__import__(name)",
        ):
            self.assertTrue(ending.names_holder([code]), code)

    def test_a_module_of_the_programs_own_may_have_some(self):
        self.assertTrue(self.imported("/workspace/helper.py"))
        self.assertFalse(self.imported(sys.prefix + "/lib/python3/helper.py"))
        self.assertFalse(self.imported(None))

    def test_modules_that_cannot_be_told_apart_may_have_some(self):
        ending.last_module = "no such module"
        self.assertTrue(ending.names_holder([b"1"]))


class Immortality(unittest.TestCase):
    """In a process of its own, since it lasts."""

    CODE = """
import sys
from cellblock_driver import immortal

class Acts:
    def __del__(self):
        print("freed")

class Passive:
    pass

def counts():
    things = passive, passive.text, code, code.co_consts[1], table, next(iter(table)), Passive
    return [sys.getrefcount(thing) for thing in things]

acts, passive, table = [Acts()], Passive(), {"key " * 9: 1.5}
passive.text = "text " * 9
code = (lambda: ("constant " * 9)).__code__
alike = counts()
kept = passive, passive.text, code, code.co_consts[1], table, next(iter(table)), Passive
assert all(after > before for before, after in zip(alike, counts()))
immortal.immortalise()
before = counts()
more = kept * 3
assert counts() == before, (before, counts())
del more, kept
assert counts() == before, (before, counts())
acts.clear()
later = Passive()
few = sys.getrefcount(later)
again = later
assert sys.getrefcount(later) == few + 1
print("end")
"""

    @unittest.skipUnless(immortal.IMMORTAL >= immortal.LEAST, "this Python has no immortal objects")
    def test_objects_that_are_there_are_counted_no_more(self):
        run = subprocess.run([sys.executable, "-B", "-c", self.CODE], capture_output=True, text=True)
        self.assertEqual((run.stderr, run.stdout), ("", "freed\nend\n"))

    def test_without_immortal_objects_nothing_is_changed(self):
        self.assertEqual(immortal.is_possible(), immortal.IMMORTAL >= immortal.LEAST)


class Output(unittest.TestCase):
    """Results wait until what was printed has been read, but not each for a writer that
    never stops."""

    def tearDown(self):
        output.pipes.clear()

    def test_a_pipe_that_is_never_empty_is_waited_for_once(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        self.addCleanup(os.close, writer)
        os.write(writer, b"x")
        output.pipes[writer] = os.fstat(writer)[1:3]
        self.assertTrue(output.is_unread(writer))
        output.settle()
        self.assertEqual(output.pipes, {})
        self.assertFalse(output.is_unread(writer))


class Protocol(unittest.TestCase):
    def setUp(self):
        requests, self.requests = os.pipe()
        self.frames, frames = os.pipe()
        # Descriptors in a row, as in a cell.
        self.first = os.dup2(requests, 100)
        os.dup2(frames, 101)
        os.close(requests)
        os.close(frames)
        self.channel = protocol.Channel(100)

    def tearDown(self):
        for descriptor in (self.requests, self.frames, 100, 101):
            try:
                os.close(descriptor)
            except OSError:
                pass

    def test_requests_come_until_the_end(self):
        code = (b"b", b"code", b"1"), (b"b", b"name", b"main.py"), (b"b", b"directory", b"/w")
        os.write(self.requests, encoded(*code, (b"b", b"argument", b"\xff"), (b"b", b"execution", b"1")))
        os.write(self.requests, encoded(*code, (b"b", b"execution", b"2")))
        os.close(self.requests)
        request = self.channel.receive()
        self.assertEqual((request.code, request.name), (b"1", "main.py"))
        self.assertEqual((request.arguments, request.execution), (["\udcff"], b"1"))
        self.assertEqual(self.channel.receive().execution, b"2")
        self.assertIsNone(self.channel.receive())

    def test_a_request_is_whole(self):
        os.write(self.requests, encoded((b"b", b"code", b"1"))[:-1])
        os.close(self.requests)
        with self.assertRaises(SystemExit):
            self.channel.receive()

    def test_frames_carry_their_execution(self):
        self.channel.execution = b"7"
        self.assertTrue(self.channel.send("clear", (b"t", "wait", b"1")))
        expected = encoded((b"t", b"kind", b"clear"), (b"t", b"execution", b"7"), (b"t", b"wait", b"1"))
        self.assertEqual(os.read(self.frames, 1000), expected)

    def test_another_descriptor_gets_no_frames(self):
        reader, writer = os.pipe()
        os.dup2(writer, 101)
        self.assertFalse(self.channel.send("done"))
        os.dup2(reader, 100)
        self.assertIsNone(self.channel.receive())


class Code(unittest.TestCase):
    def values(self, code):
        scope, value = {}, None
        for part in Source(code, "main.py").compile():
            value = eval(part, scope)
        return value

    def test_the_last_expression_has_the_value(self):
        for code, value in [
            (b"", None),
            (b"x = 1", None),
            (b"x = 1\nx + 1", 2),
            (b"x = 1; x", 1),
            (b"5;", None),
            (b"5  # ;", 5),
            ("'é';".encode(), None),
            (b"# coding: latin-1\n'\xe9'", "é"),
        ]:
            self.assertEqual(self.values(code), value, code)

    def test_await_is_noticed(self):
        for code, expected in [(b"await x", True), (b"async def f(): await x", False)]:
            parts = Source(code, "main.py").compile()
            self.assertEqual(any(map(is_coroutine, parts)), expected, code)


class Forms(unittest.TestCase):
    def fields(self, value, **options):
        return {key: data for _, key, data in rich.fields(value, **options)}

    def test_objects_have_jupyters_forms(self):
        class Badge:
            def __repr__(self):
                return "badge"

            def _repr_html_(self):
                return "<b>"

            def _repr_svg_(self):
                return 1 / 0

        fields = self.fields(Badge())
        self.assertEqual((fields["text/plain"], fields["text/html"]), (b"badge", b"<b>"))
        self.assertEqual(fields["failed"], b"image/svg+xml: ZeroDivisionError: division by zero")

    def test_large_forms_are_cut_or_left_out(self):
        limit = results.LIMIT
        fields = self.fields({"text/plain": "x" * (limit + 9), "text/html": "x" * (limit + 9)}, is_bundle=True)
        self.assertEqual(len(fields["text/plain"]), limit)
        self.assertNotIn("text/html", fields)

    def test_a_plain_value_is_its_repr(self):
        self.assertEqual(results.plain_fields([1]), [(protocol.TEXT, "text/plain", b"[1]")])
        self.assertIsNone(results.plain_fields(object()))

    def test_a_handle_has_a_name(self):
        self.assertEqual(len(display.DisplayHandle().display_id), 32)


class Values(unittest.TestCase):
    def test_json_has_a_form_for_each(self):
        for value, expected in [
            (1 << 70, str(1 << 70)),
            (float("nan"), None),
            (float("inf"), None),
            ({1: (True, None)}, {"1": [True, None]}),
            ([[[[1]]]], [[["[1]"]]]),
        ]:
            self.assertEqual(tables.plain(value), expected)

    def test_what_is_cut_is_counted(self):
        cut = []
        self.assertEqual(len(tables.plain("x" * 5000, cut)), tables.TEXT + 1)
        self.assertEqual(len(tables.plain(list(range(500)), cut)), 100)
        self.assertEqual(len(cut), 2)

    def test_units_are_in_brackets(self):
        units = [figures.unit(label) for label in ("way (km)", "way [m]", "way", "(m)")]
        self.assertEqual(units, ["km", "m", None, None])


class Compiled(unittest.TestCase):
    """The driver's code as its Python has compiled it, beside the sources."""

    SHOWS = b"""
import builtins, os, site, sys
print(sys.path, sys.flags, sorted(sys.modules), sorted(vars(builtins)), sys.prefix, sys.base_prefix)
print(site.ENABLE_USER_SITE, [type(finder) for finder in sys.meta_path], exit, __file__)
print(os.environ.get("FROM_PTH"), display.__doc__)
display(1, [2])
raise ValueError("an error")
"""

    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)
        own = os.path.dirname(protocol.__file__)
        sources = {}
        for path in sorted(glob.glob(own + "/*.py")):
            with open(path, "rb") as file:
                sources[os.path.basename(path)[:-3]] = file.read()
        self.write("__main__.py", sources.pop("__main__"))
        self.compiler = sources.pop("compiled").decode()
        parts = (b"\f%s\n%s" % (name.encode(), text) for name, text in sources.items())
        self.modules = b"".join(parts)
        self.forged = self.modules.replace(b"\fmain\n", b"\fmain\nprint('compiled')\n")
        self.write("modules", self.modules)

    def write(self, name, content):
        with open(self.place.name + "/" + name, "wb") as file:
            file.write(content)

    def compiled(self, modules):
        command = [sys.executable, "-I", "-S", "-c", self.compiler, self.place.name]
        run = subprocess.run(command, input=modules, stdout=subprocess.PIPE, check=True)
        return bytes.fromhex(run.stdout.decode())

    def run_driver(self, python=sys.executable, code=SHOWS, **variables):
        """What a program shows, on its streams and the channel."""
        keys = b"execution", b"code", b"name", b"directory"
        values = b"1", code, b"main.py", b"/"
        request = encoded(*[(b"t", key, value) for key, value in zip(keys, values)])
        with tempfile.TemporaryFile() as requests, tempfile.TemporaryFile() as frames:
            requests.write(request)
            requests.seek(0)
            both = requests.fileno(), frames.fileno()
            run = subprocess.run(
                ["bash", "-c", 'exec "$0" -B -X utf8 "$1" 3 3<&%d 4>&%d' % both, python, self.place.name + "/__main__.py"],
                pass_fds=both,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ["PATH"], **variables},
            )
            frames.seek(0)
            return run.returncode, run.stdout, frames.read()

    def test_it_is_executed(self):
        self.write("compiled", self.compiled(self.forged))
        self.assertEqual(self.run_driver(code=b"print(1)")[1], b"compiled\n1\n")

    def test_that_of_another_python_is_not(self):
        forged, magic = self.compiled(self.forged), importlib.util.MAGIC_NUMBER
        for content in (
            b"\0" + forged[1:],
            forged[:40],
            magic + b"N",
            magic + b"\xff" * 100,
            magic,
            b"",
        ):
            self.write("compiled", content)
            self.assertEqual(self.run_driver(code=b"print(1)")[1], b"1\n", content[:8])

    def test_nothing_else_differs(self):
        home = self.place.name + "/home"
        library = home + "/.local/lib/python%d.%d/site-packages" % sys.version_info[:2]
        os.makedirs(library)
        with open(library + "/own.pth", "w") as file:
            file.write("import os; os.environ['FROM_PTH'] = 'user'\n/\n")
        with open(library + "/usercustomize.py", "w") as file:
            file.write("print('usercustomize')\n")
        with open(home + "/sitecustomize.py", "w") as file:
            file.write("print('sitecustomize')\n")
        try:
            environment = self.place.name + "/environment"
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
            pythons = sys.executable, environment + "/bin/python"
        except subprocess.CalledProcessError:
            pythons = (sys.executable,)  # Debian has that module in a package of its own
        starts = [
            (python, variables)
            for python in pythons
            for variables in (
                {},
                {"HOME": home},
                {"HOME": home, "PYTHONPATH": home},
                {"PYTHONOPTIMIZE": "2"},
            )
        ]
        sources = [self.run_driver(python, **variables) for python, variables in starts]
        self.write("compiled", self.compiled(self.modules))
        for (python, variables), expected in zip(starts, sources):
            status, shown, frames = expected
            self.assertEqual(status, 1, shown)
            self.assertIn(b"ValueError", frames)
            has_user_site = "HOME" in variables and python == sys.executable
            self.assertEqual(b"usercustomize" in shown, has_user_site)
            self.assertEqual(self.run_driver(python, **variables), expected, (python, variables))


if __name__ == "__main__":
    unittest.main()
