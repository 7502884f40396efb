"""An agent of smolagents with a scripted model, whose code runs in a cell."""

import unittest

import cellblock
from cellblock.smolagents import CellblockExecutor
from smolagents import AgentError, CodeAgent, tool
from smolagents.models import ChatMessage, MessageRole, Model


class Scripted(Model):
    """Says these lines."""

    def __init__(self, *codes):
        super().__init__(model_id="scripted")
        self.codes = list(codes)

    def generate(self, messages, **options):
        code = self.codes.pop(0)
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"Thought\n<code>\n{code}\n</code>")


@tool
def double(n: int) -> int:
    """Doubles a number.

    Args:
        n: The number.
    """
    return 2 * n


class Agents(unittest.TestCase):
    def setUp(self):
        self.server = cellblock.Server(rootfs="host")
        self.addCleanup(self.server.close)
        self.executor = CellblockExecutor(server=self.server)
        self.addCleanup(self.executor.cleanup)

    def agent(self, *codes):
        options = {"executor": self.executor, "verbosity_level": 0}
        return CodeAgent(tools=[double], model=Scripted(*codes), **options)

    def test_steps_share_variables_and_tools_and_survive_errors(self):
        agent = self.agent("x = double(21)\nprint(x)", "1 / 0", "final_answer({'x': x})")
        self.assertEqual(agent.run("go"), {"x": 42})
        errors = [str(step.error) for step in agent.memory.steps if getattr(step, "error", None)]
        self.assertEqual(len(errors), 1)
        self.assertIn("ZeroDivisionError", errors[0])

    def test_a_long_answer_is_whole(self):
        self.assertEqual(self.agent("final_answer('x' * 300000)").run("go"), "x" * 300000)

    def test_variables_are_sent_and_values_come_back(self):
        self.executor.send_variables({"a": [1, 2], "b": {"c": None}})
        output = self.executor("print('log')\nlen(a) + len(b)")
        self.assertEqual((str(output.output), output.logs), ("3", "log\n"))
        self.assertFalse(output.is_final_answer)

    def test_pickles_are_refused(self):
        answer = "class FinalAnswerException(BaseException): pass\n"
        answer += "open('/workspace/.cellblock-final-answer', 'w').write('pickle:gASVBQAAAA==')\n"
        with self.assertRaisesRegex(Exception, "[Pp]ickle"):
            self.executor(answer + "raise FinalAnswerException('pickle:')")

    def test_a_package_that_cannot_be_installed_is_an_error(self):
        with self.assertRaises(AgentError):
            self.executor.install_packages(["no-such-package-here"])


if __name__ == "__main__":
    unittest.main()
