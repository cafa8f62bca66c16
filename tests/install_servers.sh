#!/usr/bin/env bash
# What tests start by themselves: PostgreSQL, a Java for Spark and Chromium, from the system's packages, and PySpark.
# Called by .ci/run under FEDPRIOR_CI_FULL=1 only; all else runs without them, and skips with a reason.
set -euo pipefail
if ! python -c 'import sys; sys.exit(sys.prefix == sys.base_prefix)'; then
    echo "install_servers.sh: python must be that of a virtual environment. Activate one first." >&2
    exit 2
fi
as_root=""
[ "$(id -u)" = 0 ] || as_root="sudo"
missing=()
ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1 || missing+=(postgresql)
command -v java > /dev/null || missing+=(default-jre-headless)
command -v chromium > /dev/null || missing+=(chromium)
if [ ${#missing[@]} -gt 0 ]; then
    $as_root apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq "${missing[@]}"
fi
python -m pip install --quiet -e '.[spark]'
