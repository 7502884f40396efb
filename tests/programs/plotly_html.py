import pandas as pd
import plotly.express as px

df = px.data.gapminder().query("country == 'Norway'")
fig = px.line(df, x="year", y="lifeExp", title="Life expectancy in Norway")
fig.update_layout(xaxis_title="Year", yaxis={"title": "Years"})
fig.write_html("chart.html", include_plotlyjs="cdn")
print(len(fig.data), fig.layout.title.text, len(df))
