"""The backend of deepagents: what its tools derive from commands works in a cell."""

import unittest

from cellblock.deepagents import CellblockBackend


class Backend(unittest.TestCase):
    def setUp(self):
        self.backend = CellblockBackend(rootfs="host")
        self.addCleanup(self.backend.close)

    def test_commands_have_a_status_and_one_stream(self):
        response = self.backend.execute("echo a; echo b >&2; exit 3")
        self.assertEqual((response.output, response.exit_code), ("a\nb\n", 3))
        self.assertFalse(response.truncated)
        response = self.backend.execute("head -c 200000 /dev/zero | tr '\\0' x")
        self.assertEqual((len(response.output), response.truncated), (100_000, True))

    def test_a_command_that_takes_too_long_ends_with_its_children(self):
        response = self.backend.execute("printf seen; sleep 1234 & sleep 1234", timeout=1)
        self.assertEqual(response.exit_code, 124)
        self.assertTrue(response.output.startswith("seen\nthe command took longer"), response)
        left = self.backend.execute("ps -e -o args | grep -c '[s]leep 1234'")
        self.assertEqual(left.output, "0\n")

    def test_files_go_in_and_out(self):
        sent = self.backend.upload_files(
            [("/workspace/d/a", b"\0\xff"), ("relative", b""), ("/usr/a", b""), ("/usr", b"")]
        )
        found = [response.error for response in sent]
        self.assertEqual(found[:3], [None, "invalid_path", "permission_denied"])
        self.assertIn(found[3], ("is_directory", "permission_denied"))
        got = self.backend.download_files(["/workspace/d/a", "/workspace/no", "/etc"])
        self.assertEqual(got[0].content, b"\0\xff")
        self.assertEqual([one.error for one in got], [None, "file_not_found", "is_directory"])

    def test_the_tools_of_files_work(self):
        backend = self.backend
        self.assertIsNone(backend.write("/workspace/a.py", "one\nneedle\n").error)
        self.assertEqual(backend.edit("/workspace/a.py", "needle", "thread").occurrences, 1)
        self.assertIn("thread", backend.read("/workspace/a.py").file_data["content"])
        [match] = backend.grep("thread", "/workspace").matches
        self.assertEqual((match["path"], match["line"]), ("/workspace/a.py", 2))
        [found] = backend.glob("*.py", "/workspace").matches
        self.assertEqual(found["path"], "/workspace/a.py")
        [entry] = backend.ls("/workspace").entries
        self.assertEqual(entry["path"], "/workspace/a.py")


if __name__ == "__main__":
    unittest.main()
