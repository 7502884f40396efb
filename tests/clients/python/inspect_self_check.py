"""Inspect AI's own checks of a sandbox provider, and a whole evaluation.

    pytest -o asyncio_mode=auto inspect_self_check.py
"""

import pytest
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash, python
from inspect_ai.util import SandboxUserUnsupportedError
from inspect_ai.util._sandbox.self_check import *  # noqa: F403
from inspect_ai.util._sandbox import self_check

from cellblock.inspect import CellblockSandboxEnvironment

assert len(self_check.__all__) == 44, "the checks are not those of the pinned version"


@pytest.fixture
async def sandbox_env(request):
    if request.node.originalname == "test_exec_as_user":
        # A cell has one user. The check must fail for that reason and no other.
        request.node.add_marker(pytest.mark.xfail(raises=SandboxUserUnsupportedError, strict=True))
    environments = await CellblockSandboxEnvironment.sample_init("check", None, {})
    yield environments["default"]
    await CellblockSandboxEnvironment.sample_cleanup("check", None, environments, False)
    await CellblockSandboxEnvironment.task_cleanup("check", None, True)


async def test_commands_run_beside_each_other(sandbox_env):
    import asyncio

    waiting = asyncio.create_task(sandbox_env.exec(["sh", "-c", "until [ -e go ]; do sleep 0.05; done"]))
    await asyncio.sleep(0.3)
    assert (await sandbox_env.exec(["touch", "go"])).success
    assert (await waiting).success


async def test_a_command_that_does_not_exist_has_a_status(sandbox_env):
    result = await sandbox_env.exec(["no-such-command"])
    assert (result.returncode, "no-such-command" in result.stderr) == (127, True), result


async def test_output_beyond_the_limit_is_an_error(sandbox_env):
    from inspect_ai.util import OutputLimitExceededError

    with pytest.raises(OutputLimitExceededError):
        await sandbox_env.exec(["sh", "-c", "head -c 11000000 /dev/zero"])


async def test_samples_do_not_share_files(sandbox_env):
    await sandbox_env.write_file("/tmp/mine", "secret")
    other = await CellblockSandboxEnvironment.sample_init("check", None, {})
    with pytest.raises(FileNotFoundError):
        await other["default"].read_file("/tmp/mine")
    await CellblockSandboxEnvironment.sample_cleanup("check", None, other, False)


async def test_samples_that_begin_together_share_a_server():
    import asyncio

    begin = CellblockSandboxEnvironment.sample_init
    samples = await asyncio.gather(*(begin("together", None, {}) for _ in range(3)))
    for environments in samples:
        assert (await environments["default"].exec(["true"])).success
        await CellblockSandboxEnvironment.sample_cleanup("together", None, environments, False)
    await CellblockSandboxEnvironment.task_cleanup("together", None, True)


async def test_a_server_that_cannot_start_is_tried_again(tmp_path):
    from inspect_ai.util import SandboxUnavailableError

    config = tmp_path / "cellblock.json"
    config.write_text('{"executable": "/dev/null"}')
    for _ in range(2):
        with pytest.raises(SandboxUnavailableError, match="is not a program"):
            await CellblockSandboxEnvironment.sample_init("broken", str(config), {})
    await CellblockSandboxEnvironment.task_cleanup("broken", str(config), True)


def test_an_evaluation_finds_the_provider_by_its_entry_point(tmp_path):
    """The task does not import the package: the name in `sandbox` is enough."""
    calls = [
        ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "cat given.txt; id -u"}),
        ModelOutput.for_tool_call("mockllm/model", "python", {"code": "print(6 * 7)"}),
        ModelOutput.from_content("mockllm/model", "done"),
    ]
    for call in calls:
        # Otherwise tokens are counted with a table from the network.
        call.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    task = Task(
        dataset=[Sample("go", target="done", files={"given.txt": "hello\n"})],
        solver=[use_tools(bash(), python()), generate()],
        scorer=includes(),
        sandbox="cellblock",
    )
    model = get_model("mockllm/model", custom_outputs=calls)
    [log] = eval(task, model=model, log_dir=str(tmp_path), display="none")
    assert log.status == "success", log.error
    [sample] = log.samples
    said = [message.text for message in sample.messages if message.role == "tool"]
    assert said == ["hello\n1000\n", "42\n"], sample.messages
    assert sample.scores["includes"].value == "C"
