"""The columnar table: Parquet files made from a tree or an archive, read as records, written back as a tree."""
