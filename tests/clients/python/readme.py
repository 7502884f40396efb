"""Runs the Python examples of a README, in their order and in one namespace. Examples with a model
talk to a scripted one.

    python3 readme.py README.md
"""

import http.server
import json
import os
import re
import sys
import tempfile
import threading


class Model(http.server.BaseHTTPRequestHandler):
    """Asks for one execution, checks its result, and says so."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        is_openai = self.path.endswith("/responses")
        answer = openai(body["input"]) if is_openai else anthropic(body["messages"])
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *words):
        pass


CODE = "print('from the cell')\n6 * 7"


def checked(output):
    expected = {"stdout": "from the cell\n", "value": "42", "error": None}
    return "42" if json.loads(output) == expected else f"wrong: {output}"


def openai(messages):
    last = messages[-1]
    if last.get("type") == "function_call_output":
        part = {"type": "output_text", "text": checked(last["output"]), "annotations": []}
        item = {"type": "message", "role": "assistant", "status": "completed", "content": [part]}
    else:
        arguments = json.dumps({"code": CODE})
        item = {"type": "function_call", "call_id": "c", "name": "run_code", "arguments": arguments}
    return {
        "id": "r", "object": "response", "created_at": 0, "model": "scripted", "error": None,
        "output": [{"id": "i", **item}], "parallel_tool_calls": False, "tool_choice": "auto",
        "tools": [],
    }


def anthropic(messages):
    last = messages[-1]["content"]
    if isinstance(last, list):
        content, reason = {"type": "text", "text": checked(last[0]["content"])}, "end_turn"
    else:
        content = {"type": "tool_use", "id": "t", "name": "run_code", "input": {"code": CODE}}
        reason = "tool_use"
    return {
        "id": "m", "type": "message", "role": "assistant", "model": "scripted",
        "content": [content], "stop_reason": reason, "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def inspects():
    """A model for Inspect that runs code and repeats what it printed."""
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    outputs = [
        ModelOutput.for_tool_call("mockllm/model", "python", {"code": "print(6 * 7)"}),
        ModelOutput.from_content("mockllm/model", "42"),
    ]
    for output in outputs:
        # Otherwise tokens are counted with a table from the network.
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return get_model("mockllm/model", custom_outputs=outputs)


def main(path):
    model = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{model.server_port}"
    # Otherwise Ray leaves a token in the home directory.
    os.environ["RAY_AUTH_MODE"] = "disabled"
    os.environ.update(
        OPENAI_BASE_URL=url, OPENAI_API_KEY="none", ANTHROPIC_BASE_URL=url, ANTHROPIC_API_KEY="none"
    )
    with open(path) as file:
        examples = re.findall(r"(?:<!-- with: (\w+) -->\n)?```python\n(.*?)```", file.read(), re.S)
    assert len(examples) >= 12, f"{path} has {len(examples)} examples"
    names = {"model": inspects()}
    with tempfile.TemporaryDirectory() as directory:
        # Inspect writes logs to the working directory.
        os.chdir(directory)
        for module, source in examples:
            said = []
            names["print"] = lambda *words, **_: said.append(words)
            exec(compile(source, path, "exec"), names)
            assert not module or said == [("42",)], (module, said)
    print(f"{len(examples)} examples of {path} ran")


main(sys.argv[1])
