import altair as alt
import pandas as pd

df = pd.DataFrame({"x": ["a", "b", "c"], "y": [3, 1, 2]})
chart = alt.Chart(df).mark_bar().encode(x=alt.X("x", sort="-y"), y="y", tooltip=["x", "y"])
chart.save("chart.json")
spec = chart.to_dict()
print(spec["mark"], spec["encoding"]["y"])
