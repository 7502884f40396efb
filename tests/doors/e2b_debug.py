"""E2B's own Python SDK with E2B_DEBUG, where it creates nothing and expects fixed ports"""

from e2b_code_interpreter import Sandbox

sandbox = Sandbox.create()
assert sandbox.is_running()
assert sandbox.run_code("x = 20\nx + 1").text == "21"
sandbox.files.write("a/b", "text")
assert sandbox.files.read("a/b") == "text"
assert [entry.name for entry in sandbox.files.list("a")] == ["b"]
assert sandbox.run_code("open('a/b').read()").text == "text"
assert sandbox.kill()
assert Sandbox.create().run_code("x").text == "20"
print("e2b debug: ok")
