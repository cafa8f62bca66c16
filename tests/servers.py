"""Real servers for tests, started here and stopped after them; skipped with a reason if missing."""

import os
import shutil
import subprocess
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def postgres():
    """The URL of a PostgreSQL of its own, on a socket, with the password `opensesame`."""
    pytest.importorskip("ibis", reason="needs fedprior[warehouse]")
    pytest.importorskip("psycopg", reason="needs fedprior[warehouse]", exc_type=ImportError)
    initdb = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))), None)
    initdb = initdb or shutil.which("initdb")
    if initdb is None:
        pytest.skip("needs PostgreSQL (Debian's package postgresql)")
    with started(Path(initdb).parent) as url:
        yield url


PASSWORD = "opensesame"


@contextmanager
def started(programs):
    """A server that listens on a socket in its own folder; root cannot run one."""
    own = {}
    if os.getuid() == 0:
        own = {"user": "nobody", "group": "nogroup", "extra_groups": []}
    folder = Path(tempfile.mkdtemp(prefix="fedprior-pg-"))
    secret = folder / "password"
    secret.write_text(PASSWORD)
    if own:
        for path in (folder, secret):
            shutil.chown(path, own["user"], own["group"])
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}

    def run(program, *arguments):
        told = subprocess.run(
            [programs / program, *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            **own,
        )
        if told.returncode:
            pytest.skip(f"{program} failed: {told.stderr.strip()[-200:]}")

    data = folder / "data"
    try:
        made = ("-D", data, "-U", "tester", "-A", "scram-sha-256", "--pwfile", secret, "-N")
        run("initdb", *made)
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        log = ("-l", folder / "log")
        run("pg_ctl", "-D", data, "-o", options, *log, "-w", "start")
        yield f"postgresql://tester@/postgres?host={folder}"
    finally:
        if (data / "postmaster.pid").exists():
            run("pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """A session of Spark in this process, of two threads."""
    pytest.importorskip("pyspark", reason="needs fedprior[spark]")
    if shutil.which("java") is None:
        pytest.skip("needs Java (Debian's package default-jre-headless)")
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", str(folder))
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
