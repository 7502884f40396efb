"""Every package of the recipe is imported and does something whose result is known."""

import asyncio
import datetime
import http.server
import io
import threading

import aiohttp
import altair
import bs4
import docx
import httpx
import jinja2
import lxml.etree
import matplotlib.pyplot as plt
import networkx
import numpy as np
import openpyxl
import pandas as pd
import PIL.Image
import plotly.express
import polars
import pptx
import psutil
import pyarrow
import pyarrow.compute
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet
import pypdf
import reportlab.pdfgen.canvas
import requests
import scipy.optimize
import seaborn
import statsmodels.api
import statsmodels.formula.api
import sympy
import tabulate
import tqdm
import xlsxwriter
import yaml
from sklearn.datasets import load_iris
from sklearn.linear_model import LinearRegression

assert np.linalg.det(np.eye(3)) == 1
frame = pd.DataFrame({"x": [0, 1, 2], "y": [1.0, 3.0, 5.0]})
assert frame.describe().loc["mean", "y"] == 3
model = LinearRegression().fit(frame[["x"]].to_numpy(), frame["y"])
assert round(float(model.predict([[10]])[0]), 6) == 21
assert load_iris().data.shape == (150, 4)
assert abs(scipy.optimize.brentq(lambda x: x * x - 2, 0, 2) - 2**0.5) < 1e-9
fit = statsmodels.formula.api.ols("y ~ x", frame).fit()
assert round(fit.params["x"], 6) == 2 and "R-squared" in str(fit.summary())
assert len(statsmodels.api.add_constant(frame).columns) == 3
x = sympy.symbols("x")
assert sympy.integrate(2 * x, x) == x**2
assert sympy.parse_expr("x**2").diff(x) == 2 * x
assert networkx.shortest_path_length(networkx.path_graph(5), 0, 4) == 4

# Columns, and the formats that they are kept in.
table = pyarrow.table({"x": [1, 2, 3], "y": ["a", "b", "a"]})
assert pyarrow.compute.sum(table["x"]).as_py() == 6
for codec in ("snappy", "zstd", "gzip", "lz4", "brotli"):
    pyarrow.parquet.write_table(table, f"{codec}.parquet", compression=codec)
    assert pyarrow.parquet.read_table(f"{codec}.parquet") == table
assert pyarrow.dataset.dataset("zstd.parquet").count_rows() == 3
pyarrow.csv.write_csv(table, "table.csv")
assert pyarrow.csv.read_csv("table.csv") == table
frame.to_parquet("frame.parquet")
assert pd.read_parquet("frame.parquet").equals(frame)
frame.to_feather("frame.feather")
assert pd.read_feather("frame.feather").equals(frame)
wide = polars.read_parquet("snappy.parquet")
sums = wide.group_by("y").agg(polars.col("x").sum()).sort("y")
assert sums.rows() == [("a", 4), ("b", 2)]
assert wide.lazy().filter(polars.col("x") > 1).collect().height == 2
assert wide.sql("select max(x) as x from self").item() == 3
assert polars.from_pandas(frame).to_pandas().equals(frame)

# Documents.
sheet = io.BytesIO()
frame.to_excel(sheet, index=False)
assert pd.read_excel(sheet).equals(frame.astype({"y": "int64"}))
book = xlsxwriter.Workbook("book.xlsx")
cells = book.add_worksheet()
cells.write_column("A1", [1, 2, 3])
chart = book.add_chart({"type": "column"})
chart.add_series({"values": "=Sheet1!$A$1:$A$3"})
cells.insert_chart("C1", chart)
book.close()
assert openpyxl.load_workbook("book.xlsx").active["A3"].value == 3
text = docx.Document()
text.add_heading("Title")
text.add_paragraph("body", style="List Bullet")
text.save("text.docx")
assert [p.text for p in docx.Document("text.docx").paragraphs] == ["Title", "body"]
slides = pptx.Presentation()
slides.slides.add_slide(slides.slide_layouts[0]).shapes.title.text = "Title"
slides.save("slides.pptx")
assert pptx.Presentation("slides.pptx").slides[0].shapes.title.text == "Title"
page = reportlab.pdfgen.canvas.Canvas("page.pdf")
page.drawString(100, 700, "printed words")
page.save()
assert pypdf.PdfReader("page.pdf").pages[0].extract_text().strip() == "printed words"

# Text.
assert bs4.BeautifulSoup("<p>a<b>c</b>", "lxml").b.text == "c"
assert lxml.etree.fromstring("<a><b/></a>")[0].tag == "b"
assert yaml.safe_load("[1, two]") == [1, "two"]
assert jinja2.Template("{% for n in range(3) %}{{ n }}{% endfor %}").render() == "012"
assert tabulate.tabulate([[1, "a"]], headers=["n", "s"]).splitlines()[2].split() == ["1", "a"]
assert sum(tqdm.tqdm(range(4), disable=True)) == 6

# Pictures.
seaborn.lineplot(data=frame, x="x", y="y")
plt.title("growth – é ∑")
image = io.BytesIO()
plt.savefig(image, format="png")
assert PIL.Image.open(image).size == (640, 480)
plt.savefig("plot.svg")
plt.savefig("plot.pdf")
figure = plotly.express.scatter(frame, x="x", y="y", trendline="ols")
assert figure.data[0].type == "scatter"
assert "Plotly.newPlot" in figure.to_html(include_plotlyjs=True)
chart = altair.Chart(frame).mark_line().encode(x="x", y="y:Q")
assert chart.to_dict()["mark"]["type"] == "line" and "vega" in chart.to_html()

# The machine and the network, of which a cell has itself.
assert psutil.Process().memory_info().rss > 0


class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"hi")

    def log_message(self, *words):
        pass


async def fetch(url):
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return await answer.text()


with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    assert requests.get(url).text == "hi"
    assert httpx.get(url).text == "hi"
    assert asyncio.run(fetch(url)) == "hi"
    server.shutdown()
assert datetime.datetime(2024, 1, 31) + pd.DateOffset(months=1) == datetime.datetime(2024, 2, 29)
