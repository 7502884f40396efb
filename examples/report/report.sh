#!/bin/sh
# Makes one page of HTML of the data analysis beside this: its plot, its table, and
# what the cell was allowed and used. The page needs nothing else, runs no scripts
# and loads nothing, so it can be mailed or kept.
#
#   report.sh [PAGE]    default: harvest.html
#
# CELLBLOCK names the executable, when it is not in the PATH.
set -eu
here=$(dirname "$0")
cellblock=${CELLBLOCK:-cellblock}
page=${1:-harvest.html}

record=$(mktemp)
trap 'rm -f "$record"' EXIT
"$here/../data-analysis/run.sh" "$record" >/dev/null
"$cellblock" show "$record" --html >"$page"
echo "$page"
