import pandas as pd

df = pd.DataFrame({
    "city": ["Oslo", "Oslo", "Rome", "Rome", "Rome"],
    "year": [2023, 2024, 2023, 2024, 2024],
    "temp": [5.5, 6.5, 15.0, 16.0, 17.0],
})
table = df.pivot_table(index="city", columns="year", values="temp", aggfunc="mean")
print(table.round(2).to_string())
df.groupby("city")["temp"].describe()[["count", "mean", "max"]]
