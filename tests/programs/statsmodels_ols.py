import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from statsmodels.tsa.seasonal import seasonal_decompose

rng = np.random.default_rng(0)
df = pd.DataFrame({"x": np.arange(50.0)})
df["y"] = 3 * df["x"] + 2 + rng.normal(0, 0.1, 50)
model = smf.ols("y ~ x", data=df).fit()
print(model.params.round(1).to_dict(), model.rsquared > 0.99)
series = pd.Series(np.tile([1.0, 2, 3, 4], 6), index=pd.date_range("2020-01-01", periods=24, freq="QS"))
print(seasonal_decompose(series, period=4).seasonal.iloc[:4].round(2).tolist())
