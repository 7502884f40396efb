# Starts the driver: `bash shim.sh 3` serves the requests that come from descriptor 3, and writes
# frames to descriptor 4. Where it can be loaded, this never returns.
builtin enable -f "${BASH_SOURCE[0]%/*}/driver.so" cellblock
