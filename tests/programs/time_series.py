import pandas as pd

days = pd.date_range("2024-01-01", periods=60, freq="D")
series = pd.Series(range(60), index=days, name="visits")
monthly = series.resample("MS").sum()
print(monthly.to_dict())
print(series.rolling(7).mean().iloc[-1], series.pct_change().iloc[2])
series.to_frame().reset_index(names="day").to_csv("visits.csv", index=False)
