"""SandboxFusion's own client against a server: sandbox_fusion_client.py URL"""

import asyncio
import base64
import sys

from sandbox_fusion import (
    CommandRunStatus,
    RunCodeRequest,
    RunJupyterRequest,
    RunStatus,
    run_code,
    run_code_async,
    run_concurrent,
    run_jupyter,
    set_endpoint,
)


def request(code, language="python", **more):
    return RunCodeRequest(code=code, language=language, **more)


def languages():
    for language, code in [
        ("python", "print(int(input()) * 2)"),
        ("bash", "read n; echo $((n * 2))"),
    ]:
        ran = run_code(request(code, language, stdin="21\n"))
        assert ran.status == RunStatus.Success, ran
        assert ran.run_result.status == CommandRunStatus.Finished, ran
        assert (ran.run_result.return_code, ran.run_result.stdout) == (0, "42\n"), ran


def failures():
    raised = run_code(request("print(1)\n1 / 0"))
    assert raised.status == RunStatus.Failed, raised
    assert raised.run_result.return_code == 1, raised
    assert "ZeroDivisionError" in raised.run_result.stderr, raised
    late = run_code(request("while True: pass", run_timeout=1))
    assert late.run_result.status == CommandRunStatus.TimeLimitExceeded, late
    try:
        # The client raises an exception for the status SandboxError.
        run_code(request("x", "racket"), max_attempts=1)
    except Exception as error:
        assert "python, bash, nodejs" in str(error), error
    else:
        raise AssertionError("racket was executed")


def files():
    content = base64.b64encode(b"\0\xff").decode()
    code = "data = open('a', 'rb').read(); open('b', 'wb').write(data[::-1])"
    ran = run_code(request(code, files={"a": content}, fetch_files=["b", "none"]))
    assert {name: base64.b64decode(text) for name, text in ran.files.items()} == {"b": b"\xff\0"}


def notebooks():
    cells = ["x = 1", "print(x)\nx + 1", "1 / 0"]
    ran = run_jupyter(RunJupyterRequest(cells=cells, kernel="python3"))
    assert ran.status == RunStatus.Success, ran
    assert ran.cells[1].stdout == "1\n", ran
    assert ran.cells[1].display == [{"text/plain": "2"}], ran
    assert ran.cells[2].error[0]["ename"] == "ZeroDivisionError", ran


def many_at_once():
    requests = [[request(f"print({n})")] for n in range(64)]
    for n, ran in enumerate(run_concurrent(run_code, args=requests)):
        assert ran.run_result.stdout == f"{n}\n", ran

    async def together():
        return await asyncio.gather(*(run_code_async(*each) for each in requests))

    for n, ran in enumerate(asyncio.run(together())):
        assert ran.run_result.stdout == f"{n}\n", ran


if __name__ == "__main__":
    set_endpoint(sys.argv[1])
    for scenario in [languages, failures, files, notebooks, many_at_once]:
        scenario()
        print(f"sandbox-fusion: {scenario.__name__}: ok")
