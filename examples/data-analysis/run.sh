#!/bin/sh
# Analyses harvest.csv in a cell and saves the record.
#
#   run.sh [RECORD]     default: harvest.record.json
#
# CELLBLOCK names the executable, when it is not in the PATH.
set -eu
here=$(dirname "$0")
cellblock=${CELLBLOCK:-cellblock}
record=${1:-harvest.record.json}

rootfs=auto
if "$cellblock" rootfs show python-data >/dev/null 2>&1; then rootfs=python-data; fi

"$cellblock" run --lang python --rootfs "$rootfs" --wall 60s --memory 1G \
    --file "$here/harvest.csv" --record "$record" "$here/analyse.py"
"$cellblock" show "$record"
