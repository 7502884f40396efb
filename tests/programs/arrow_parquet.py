import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

table = pa.table({"year": [2023, 2023, 2024], "value": [1.5, 2.5, 4.0]})
pq.write_to_dataset(table, "data", partition_cols=["year"])
read = ds.dataset("data", partitioning="hive").to_table(filter=ds.field("year") == 2023)
print(read.num_rows, pc.sum(read["value"]).as_py())
print(table.group_by("year").aggregate([("value", "mean")]).sort_by("year").to_pylist())
