import polars as pl

df = pl.DataFrame({"user": ["a", "b", "a", "c"], "ms": [120, 80, 60, 300]})
df.write_parquet("log.parquet")
out = (
    pl.scan_parquet("log.parquet")
    .filter(pl.col("ms") < 200)
    .group_by("user")
    .agg(pl.col("ms").mean().alias("mean"), pl.len().alias("n"))
    .sort("user")
    .collect()
)
print(out.rows())
