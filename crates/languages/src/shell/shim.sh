# Starts the driver: `bash shim.sh 3` serves the requests that come from descriptor 3,
# and writes frames to descriptor 4.
#
# Bash goes on after an interrupt only as an interactive shell, which takes its commands
# from stdin. That is a pipe here, into which the driver writes each next command itself:
# so code runs at the top level, where no loop or function of the driver's is around it.
exec 200<&"$1" 201>&"$(($1 + 1))" 202>&2 2>/dev/null
exec 3<&- 4>&- 203<> <(:)
exec 0<> <(:)
printf '. %q\n' "${BASH_SOURCE[0]%/*}/session.sh" >&0
exec "$BASH" --norc --noprofile --noediting +o history +H -i
