import io

import aiohttp
import bs4
import lxml.etree
import matplotlib.pyplot as plt
import networkx
import numpy as np
import openpyxl
import pandas as pd
import PIL.Image
import requests
import scipy.optimize
import seaborn
import sympy
import yaml
from sklearn.datasets import load_iris
from sklearn.linear_model import LinearRegression

assert np.linalg.det(np.eye(3)) == 1
frame = pd.DataFrame({"x": [0, 1, 2], "y": [1.0, 3.0, 5.0]})
assert frame.describe().loc["mean", "y"] == 3
sheet = io.BytesIO()
frame.to_excel(sheet, index=False)
assert pd.read_excel(sheet).equals(frame.astype({"y": "int64"}))
model = LinearRegression().fit(frame[["x"]].to_numpy(), frame["y"])
assert round(float(model.predict([[10]])[0]), 6) == 21
assert load_iris().data.shape == (150, 4)
assert abs(scipy.optimize.brentq(lambda x: x * x - 2, 0, 2) - 2**0.5) < 1e-9
x = sympy.symbols("x")
assert sympy.integrate(2 * x, x) == x**2
assert networkx.shortest_path_length(networkx.path_graph(5), 0, 4) == 4
assert bs4.BeautifulSoup("<p>a<b>c</b>", "lxml").b.text == "c"
assert lxml.etree.fromstring("<a><b/></a>")[0].tag == "b"
assert yaml.safe_load("[1, two]") == [1, "two"]

seaborn.lineplot(data=frame, x="x", y="y")
plt.title("growth – é ∑")
image = io.BytesIO()
plt.savefig(image, format="png")
assert PIL.Image.open(image).size == (640, 480)
plt.savefig("plot.svg")
plt.savefig("plot.pdf")
