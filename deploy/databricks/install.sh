#!/bin/sh
# Runs on each machine of the cluster before Spark starts: installs queuewatch and its dependencies beside the runtime's own Spark.
set -eu
files=$(dirname "$0")
pip=${PIP:-/databricks/python/bin/pip}
pinned=$(mktemp)
sed '/^pyspark==/,/--hash/d' "$files/requirements.txt" > "$pinned"
$pip install --no-deps --require-hashes --requirement "$pinned"
$pip install --no-deps "$files"/queuewatch-*.whl "$files"/queuewatch_service-*.whl
rm "$pinned"
