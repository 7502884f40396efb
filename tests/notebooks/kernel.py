"""Executes the cells that are given as a JSON list on standard input in a kernel of IPython's; the
messages that come of each go to standard output."""

import json
import sys

from jupyter_client.manager import start_new_kernel

KINDS = "stream", "display_data", "execute_result", "update_display_data", "clear_output", "error"
manager, client = start_new_kernel()
answers = []
for code in json.load(sys.stdin):
    messages = []

    def take(message):
        if message["msg_type"] in KINDS:
            messages.append((message["msg_type"], message["content"]))

    client.execute_interactive(code, output_hook=take, allow_stdin=False, timeout=300)
    answers.append(messages)
client.stop_channels()
manager.shutdown_kernel(now=True)
json.dump(answers, sys.stdout, default=str)
