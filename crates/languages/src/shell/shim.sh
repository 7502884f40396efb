# Starts the driver: `bash shim.sh 3` serves the requests that come from descriptor 3, and writes
# frames to descriptor 4. Where it can be loaded, this never returns.
builtin enable -f "${BASH_SOURCE[0]%/*}/driver.so" cellblock
printf '%s\n' "$BASH $BASH_VERSION cannot load the driver of contexts, which needs Bash 4.4 or later," \
    'linked dynamically, as distributions have it. What it says of the reason is above.' >&2
exit 1
