"""Estimates in the user's own engine against the engine's own group-by, on the same table.

    FEDPRIOR_CONNECT=postgresql://user@/db?host=/socket python benchmarks/warehouse.py postgres
    python benchmarks/warehouse.py spark --rows 10000000 --groups 1000000
    python benchmarks/warehouse.py duckdb

Loads rows (a group, an outcome, a value at an offset of 1e6), then times: the engine's group-by
with its result kept as a table, `from_table` (sums, small tables, fit), `write_table` (the join),
and reading the new table back. Every step runs `--repeats` times, in turn; the least time counts.
Beside the clock, the CPU seconds of the engine's process (and of this one) are given, which a busy
machine disturbs less; PostgreSQL therefore runs without parallel workers.
"""

import argparse
import functools
import os
import tempfile
import time
import warnings

MEASURES = {
    "rates": ("outcome", "count(outcome), sum(outcome)"),
    "means": ("value", "count(value), avg(value), var_pop(value)"),
}
# Sizes differ between groups; theta is uniform and has nothing to do with them.
ROWS = (
    "SELECT g, CAST(CASE WHEN v < 0.1 + 0.2 * theta THEN 1 ELSE 0 END AS INT) AS outcome, "
    "1000000 + 3 * theta + w AS value FROM (SELECT g, v, w, hashed - floor(hashed) AS theta "
    "FROM (SELECT g, v, w, 43758.5453 * sin(g * 12.9898) AS hashed FROM "
    "(SELECT CAST(floor(u * u * {groups}) AS BIGINT) AS g, v, w FROM ({draws}) AS a) AS b) AS c) "
    "AS d"
)


def cpu_of(process):
    """User and system seconds of a process, all of its threads."""
    with open(f"/proc/{process}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Sql:
    """A database that Ibis reaches."""

    def __init__(self, backend, draws, process):
        self.backend, self.draws, self.process = backend, draws, process

    def run(self, statement):
        self.backend.con.execute(statement)

    def load(self, rows, groups):
        self.run("DROP TABLE IF EXISTS bench_rows")
        draws = self.draws.format(rows=rows)
        self.run(f"CREATE TABLE bench_rows AS {ROWS.format(groups=groups, draws=draws)}")
        self.run("ANALYZE bench_rows")
        return self.backend.table("bench_rows")

    def group_by(self, sums):
        self.run("DROP TABLE IF EXISTS bench_sums")
        names = ", ".join(f"{each} AS s{i}" for i, each in enumerate(sums.split(", ")))
        self.run(f"CREATE TABLE bench_sums AS SELECT g, {names} FROM bench_rows GROUP BY g")

    def read(self, table):
        return self.backend.con.execute(f"SELECT count(*), avg(personal) FROM {table}").fetchone()


class Spark:
    """A local session."""

    def __init__(self):
        from pyspark.sql import SparkSession

        self.folder = tempfile.mkdtemp()
        builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.sql.warehouse.dir", f"{self.folder}/tables")
        self.session = builder.config("spark.driver.memory", "6g").getOrCreate()
        self.session.sparkContext.setLogLevel("OFF")
        machine = self.session.sparkContext._jvm.java.lang.ProcessHandle.current()
        self.process = machine.pid()

    def load(self, rows, groups):
        draws = f"SELECT rand(1) AS u, rand(2) AS v, randn(3) AS w FROM range({rows})"
        path = f"{self.folder}/rows"
        frame = self.session.sql(ROWS.format(groups=groups, draws=draws))
        frame.write.mode("overwrite").parquet(path)
        frame = self.session.read.parquet(path)
        frame.createOrReplaceTempView("bench_rows")
        return frame

    def group_by(self, sums):
        names = ", ".join(f"{each} AS s{i}" for i, each in enumerate(sums.split(", ")))
        frame = self.session.sql(f"SELECT g, {names} FROM bench_rows GROUP BY g")
        frame.write.mode("overwrite").saveAsTable("bench_sums")

    def read(self, table):
        return self.session.sql(f"SELECT count(*), avg(personal) FROM {table}").collect()[0]


def opened(engine):
    """The engine by its name."""
    if engine == "spark":
        return Spark()
    import ibis

    if engine == "duckdb":
        backend = ibis.duckdb.connect(f"{tempfile.mkdtemp()}/bench.duckdb")
        draws = "SELECT random() AS u, random() AS v, random() AS w FROM range({rows})"
        return Sql(backend, draws, None)
    import psycopg

    link = psycopg.connect(os.environ["FEDPRIOR_CONNECT"], autocommit=True)
    backend = ibis.postgres.from_connection(link)
    draws = "SELECT random() AS u, random() AS v, random() AS w FROM generate_series(1, {rows})"
    link.execute("SET max_parallel_workers_per_gather = 0")
    process = link.execute("SELECT pg_backend_pid()").fetchone()[0]
    return Sql(backend, draws, process)


def timed(action, engine):
    """Seconds by the clock and of CPU, and the result of a call."""

    def cpu():
        return time.process_time() + (cpu_of(engine.process) if engine.process else 0.0)

    start, used = time.perf_counter(), cpu()
    found = action()
    return (time.perf_counter() - start, cpu() - used), found


def measured(engine, frame, name, repeats):
    """Least seconds of each step, by the clock and of CPU, the model, and what the table holds."""
    from fedprior import GroupMeans, GroupRates

    column, sums = MEASURES[name]
    kind = GroupRates if name == "rates" else GroupMeans
    columns = {"group": "g", "outcome" if name == "rates" else "value": column}
    times = {"group-by": [], "from_table": [], "write_table": [], "read back": []}
    for _ in range(repeats):
        times["group-by"].append(timed(lambda: engine.group_by(sums), engine)[0])
        seconds, model = timed(lambda: kind.from_table(frame, **columns), engine)
        times["from_table"].append(seconds)
        write = functools.partial(model.write_table, "bench_answers", overwrite=True)
        times["write_table"].append(timed(write, engine)[0])
        seconds, found = timed(lambda: engine.read("bench_answers"), engine)
        times["read back"].append(seconds)
    least = {step: tuple(map(min, zip(*each, strict=True))) for step, each in times.items()}
    return least, model, found


def main():
    """Load, time, print."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("engine", choices=("postgres", "spark", "duckdb"))
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--groups", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=2)
    asked = parser.parse_args()
    engine = opened(asked.engine)
    (seconds, _), frame = timed(lambda: engine.load(asked.rows, asked.groups), engine)
    print(f"{asked.engine}: {asked.rows:,} rows loaded in {seconds:.1f} s", flush=True)
    for name in MEASURES:
        least, model, (groups, mean) = measured(engine, frame, name, asked.repeats)
        print(f"{name}: {groups:,} groups, {len(model.n_):,} rows left the engine, mean {mean:.6g}")
        for step, (clock, cpu) in least.items():
            print(f"  {step:12} {clock:7.2f} s by the clock, {cpu:7.2f} s of CPU")
        for which, what in enumerate(("clock", "CPU")):
            own, fit, write = (
                least[step][which] for step in ("group-by", "from_table", "write_table")
            )
            ratio, whole = fit / own, (fit + write) / own
            print(f"  ratio by {what}: {ratio:.2f} to the fit, {whole:.2f} with the join")
        for note in model.notes_:
            print(f"  note: {note[:110]}", flush=True)


if __name__ == "__main__":
    main()
