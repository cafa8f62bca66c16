#!/usr/bin/env bash
# Servers that tests start by themselves: PostgreSQL and a Java for Spark, from the system's packages, and PySpark.
# Called by .ci/run under FEDPRIOR_CI_FULL=1 only; all else runs without them, and skips with a reason.
set -euo pipefail
as_root=""
[ "$(id -u)" = 0 ] || as_root="sudo"
if ! ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1 || ! command -v java > /dev/null; then
    $as_root apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq postgresql default-jre-headless
fi
python -m pip install --quiet -e '.[spark]'
