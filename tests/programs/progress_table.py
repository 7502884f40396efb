import sys

import psutil
from jinja2 import Template
from tabulate import tabulate
from tqdm import tqdm

total = sum(n for n in tqdm(range(100), file=sys.stderr))
print(tabulate([["sum", total]], headers=["what", "value"], tablefmt="github"))
print(Template("{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}").render(d={"a": 1, "b": 2}))
print(psutil.Process().memory_info().rss > 0, psutil.cpu_count() > 0)
