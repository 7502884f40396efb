"""An executor for the agents of smolagents: ``CodeAgent(executor=CellblockExecutor(), …)``."""

from __future__ import annotations

from typing import Any, Optional

from smolagents import AgentError, LogLevel
from smolagents.monitoring import AgentLogger
from smolagents.remote_executors import CodeOutput, RemotePythonExecutor

from .results import Execution
from .server import Context, Server

#: The name of the exception by which code gives the final answer.
FINAL_ANSWER = "FinalAnswerException"
#: Modules that smolagents' own tool for the final answer imports but can do without.
OPTIONAL = ("PIL", "numpy")
PLACEHOLDERS = f"""
import importlib.util, sys, types
_placeholders = [name for name in {OPTIONAL!r} if importlib.util.find_spec(name) is None]
sys.modules.update((name, types.ModuleType(name)) for name in _placeholders)
"""
WITHOUT_PLACEHOLDERS = """
for _name in _placeholders:
    del sys.modules[_name]
"""
#: The answer is the exception's value, of which a record has the first characters.
ANSWER = ".cellblock-final-answer"
KEEP_ANSWER = f"""
def _keeping(forward):
    def keep(*args, **kwargs):
        try:
            return forward(*args, **kwargs)
        except BaseException as error:
            if type(error).__name__ == {FINAL_ANSWER!r}:
                with open("/workspace/{ANSWER}", "w") as file:
                    file.write(error.value)
            raise
    return keep
final_answer.forward = _keeping(final_answer.forward)
"""
INSTALL = """
import subprocess, sys
subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *{packages!r}], check=True)
"""


class CellblockExecutor(RemotePythonExecutor):
    """Executes an agent's code in a context.

    ``server`` is the process's default one when it is left out; options are those of `Context`.
    Answers are exchanged as JSON: what comes out of a cell is not unpickled.
    """

    def __init__(
        self,
        additional_imports: Optional[list[str]] = None,
        logger: Any = None,
        *,
        server: Optional[Server] = None,
        **options: Any,
    ) -> None:
        super().__init__(
            additional_imports or [], logger or AgentLogger(LogLevel.ERROR), allow_pickle=False
        )
        self._context = Context("python", server=server, **options)
        self.installed_packages = self.install_packages(additional_imports or [])

    def send_tools(self, tools: dict[str, Any]) -> None:
        others = [tool for name, tool in tools.items() if name != "final_answer"]
        needed = {package for tool in others for package in tool.to_dict()["requirements"]}
        self.installed_packages += set(OPTIONAL) - needed
        self.run_code_raise_errors(PLACEHOLDERS)
        super().send_tools(tools)
        self.run_code_raise_errors(WITHOUT_PLACEHOLDERS)
        if "final_answer" in tools:
            self.run_code_raise_errors(KEEP_ANSWER)

    def install_packages(self, additional_imports: list[str]) -> list[str]:
        """Installs packages into the cell, where the server's network reaches an index."""
        if additional_imports:
            self.run_code_raise_errors(INSTALL.format(packages=additional_imports))
        return additional_imports

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        run = self._context.run(code)
        error = run.error
        if error is not None and error.name == FINAL_ANSWER:
            kept = self._context.files.read_text(ANSWER)
            answer = self._deserialize_final_answer(kept, allow_pickle=False)
            return CodeOutput(output=answer, logs=run.stdout, is_final_answer=True)
        if not run.ok:
            raise AgentError(_explained(run), self.logger)
        return CodeOutput(output=_value(run), logs=run.stdout, is_final_answer=False)

    def cleanup(self) -> None:
        """Ends the context."""
        self._context.__exit__()


def _explained(run: Execution) -> str:
    parts = [run.stdout, *(run.error.traceback if run.error else [run.stderr]), run.context or ""]
    return "\n".join(part for part in parts if part)


def _value(run: Execution) -> Any:
    """The value of the last expression: a picture, JSON, or text."""
    main = next((one for one in run.results if one.is_main_result), None)
    if main is None:
        return None
    picture = main.png or main.jpeg
    if picture is not None:
        import io

        import PIL.Image

        return PIL.Image.open(io.BytesIO(picture))
    return main.data if main.data is not None else main.text
