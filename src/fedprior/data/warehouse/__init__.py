"""Sums by group inside the engine that holds the rows: DuckDB, Polars, Spark or a warehouse."""
