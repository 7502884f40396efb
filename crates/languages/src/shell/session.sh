# Executes one request after the other in an interactive shell. Descriptors: 0 the
# commands, 200 requests, 201 frames, 203 a pipe for the driver's own use.
trap '' INT
set +m +o history
shopt -u expand_aliases checkwinsize
unset HISTFILE PS1 PS2 MAILCHECK
exec 2>&202 202>&-

# The state of the driver: the execution's number, its status, and the program's own
# handler of interrupts.
_cellblock_execution=1
_cellblock_is_running=
_cellblock_is_ready= # whether a request is still to be executed
_cellblock_is_pending=
_cellblock_is_code= # whether the code runs, and is not yet interrupted
_cellblock_status=0
_cellblock_trap='trap _cellblock_interrupt INT'
_cellblock_code=

# Reads that many bytes into a variable; NUL, which no variable can hold, is left out.
_cellblock_read() {
    local LC_ALL=C IFS= _piece _left=$2
    printf -v "$1" ''
    while ((_left > 0)); do
        read -r -d '' -n "$_left" -u 200 _piece 2>/dev/null || return 1
        printf -v "$1" '%s%s' "${!1}" "$_piece"
        # It ended at a NUL, or had all.
        ((_left -= ${#_piece} + (${#_piece} < _left))) || :
    done
}

# Reads a big-endian number of that many bytes.
_cellblock_number() {
    local LC_ALL=C IFS= _byte _code _value=0 _left=$2
    while ((_left-- > 0)); do
        read -r -d '' -n 1 -u 200 _byte 2>/dev/null || return 1
        printf -v _code %d "'$_byte"
        ((_value = _value << 8 | _code & 255))
    done
    printf -v "$1" %d "$_value"
}

# Reads a request; false at the end.
_cellblock_receive() {
    local LC_ALL=C left form length size key value
    _cellblock_work=execute
    _cellblock_code=
    _cellblock_name=
    _cellblock_arguments=()
    _cellblock_number left 4 || return
    while ((left > 0)); do
        _cellblock_read form 1 && _cellblock_number size 1 && _cellblock_number length 4 &&
            _cellblock_read key "$size" && _cellblock_read value "$length" || return
        ((left -= 6 + size + length))
        case $key in
            execution) _cellblock_execution=$value ;;
            work | code | name) printf -v "_cellblock_$key" %s "$value" ;;
            argument) _cellblock_arguments+=("$value") ;;
        esac
    done
}

# Writes a frame: its kind, then keys and values in turn.
_cellblock_say() {
    local LC_ALL=C fields= length=0 size
    set -- kind "$1" execution "$_cellblock_execution" "${@:2}"
    local values=()
    while (($# > 0)); do
        printf -v size '\\%03o\\%03o\\%03o\\%03o' $((${#2} >> 24)) $((${#2} >> 16 & 255)) $((${#2} >> 8 & 255)) $((${#2} & 255))
        printf -v fields '%st\\%03o%s%%s%%s' "$fields" ${#1} "$size"
        values+=("$1" "$2")
        ((length += 6 + ${#1} + ${#2}))
        shift 2
    done
    printf -v size '\\%03o\\%03o\\%03o\\%03o' $((length >> 24)) $((length >> 16 & 255)) $((length >> 8 & 255)) $((length & 255))
    # Where the channel is closed, the code goes on without.
    printf "$size$fields" "${values[@]}" 2>/dev/null >&201
}

# Handles SIGURG: SIGINT, which the shell gets from nobody else, calls the code's own handler or
# the next function. In a process that was just forked, the handlers are still those of the shell.
_cellblock_urgent='[[ $_cellblock_is_code && $BASHPID == $$ ]] && builtin kill -INT $$'

# Returns to the top level, once: the variable stays empty there.
_cellblock_interrupt() {
    [[ $_cellblock_is_code && $BASHPID == $$ ]] || return
    _cellblock_is_code=
    trap - INT
    builtin kill -INT $$
    : # before this one, the signal takes effect
    # It was lost. The next one tries again.
    trap _cellblock_interrupt INT
    _cellblock_is_code=1
}

# Ignores signals. Bash warns of one that it has got but not yet handled.
_cellblock_ignore() {
    trap '' "$@"
} 2>/dev/null

# The inode that a descriptor refers to; proc(5), since Linux 5.14.
_cellblock_inode() {
    local IFS=$' \t' key
    while read -r key REPLY; do
        [[ $key != ino: ]] || return 0
    done 2>/dev/null <"/proc/$$/fdinfo/$1"
    return 1
}

# The code ends the shell, and sets no handler of its own for that.
_cellblock_exit() {
    local status=$? REPLY fd
    [[ $_cellblock_is_running ]] || return
    _cellblock_is_code=
    # After `exit`, the code's descriptors are still in place; Bash keeps copies of the
    # driver's, from 10 on.
    for ((fd = 10; fd < 256; fd++)); do
        [[ -p /proc/$$/fd/$fd ]] && _cellblock_inode "$fd" && [[ $REPLY == "$_cellblock_frames" ]] || continue
        exec 201>&"$fd"
        break
    done
    _cellblock_say ending
    _cellblock_say done status "$status"
}

# Ends an execution: the program's handler rests.
_cellblock_end() {
    _cellblock_status=$?
    _cellblock_is_code=
    _cellblock_ignore URG
    { trap -p INT; printf '\0'; } >&203
    trap '' INT
    IFS= read -r -d '' -u 203 _cellblock_trap
    : "${_cellblock_trap:=trap _cellblock_interrupt INT}"
    _cellblock_is_running=
    _cellblock_say done status "$_cellblock_status"
}

# Waits for the next request; its code is then in a variable.
_cellblock_next() {
    # The line that was to end the execution did not come.
    if [[ $_cellblock_is_running ]]; then
        _cellblock_ignore INT URG
        _cellblock_is_running=
        _cellblock_status=130
        _cellblock_say error name Interrupted message 'the execution was interrupted'
        _cellblock_say done status 130
    fi
    while _cellblock_receive; do
        if [[ $_cellblock_work == describe ]]; then
            _cellblock_say started
            (_cellblock_describe)
            _cellblock_say done
            continue
        fi
        printf '%s\n' "$_cellblock_line" >&0
        BASH_ARGV0=$_cellblock_name
        _cellblock_is_running=1
        _cellblock_is_ready=1
        _cellblock_is_pending=
        trap '_cellblock_is_pending=1' URG
        _cellblock_say started
        return
    done
    exit "$_cellblock_status" 2>/dev/null
}

# What is executed at the top level. An interrupt discards the rest of a line. Where the code has
# removed the handler of SIGINT, a second one may discard the first line, too.
_cellblock_line='_cellblock_next
[[ $_cellblock_is_ready ]] || _cellblock_next; _cellblock_is_ready=; set -- "${_cellblock_arguments[@]}"; eval "$_cellblock_trap"; _cellblock_is_code=1; trap "$_cellblock_urgent" URG; [[ $_cellblock_is_pending ]] && builtin kill -INT $$; _cellblock_restore; eval "$_cellblock_code" </dev/null 200<&- 201>&- 203>&-; _cellblock_end'

# The status of the execution before, as the code would see it in a script.
_cellblock_restore() {
    return "$_cellblock_status"
}

# Describes the variables and functions of the program, in a process of its own.
_cellblock_describe() {
    local LC_ALL=C.UTF-8 IFS=$'\n' _cellblock_index=0
    local _cellblock_fields=() _cellblock_names=()
    set -f
    # Not what the shell itself has, unless it was there before.
    for _cellblock_each in $(compgen -v); do
        [[ $_cellblock_each == _cellblock_* || $_cellblock_each == _ || $_cellblock_known == *" $_cellblock_each "* ]] || _cellblock_names+=("$_cellblock_each")
    done
    _cellblock_variables=${#_cellblock_names[@]}
    for _cellblock_each in $(compgen -A function); do
        [[ $_cellblock_each == _cellblock_* ]] || _cellblock_names+=("$_cellblock_each")
    done
    _cellblock_total=${#_cellblock_names[@]}
    for _cellblock_each in "${_cellblock_names[@]:0:1000}"; do
        if ((_cellblock_index++ >= _cellblock_variables)); then
            _cellblock_fields+=(name "${_cellblock_each:0:200}" type function preview "${_cellblock_each:0:90}()")
            continue
        fi
        _cellblock_text=$(declare -p "$_cellblock_each" 2>/dev/null) || continue
        _cellblock_kind=${_cellblock_text#declare -}
        _cellblock_kind=${_cellblock_kind%% *}
        [[ $_cellblock_text == *=* ]] && _cellblock_value=${_cellblock_text#*=} || _cellblock_value=
        case $_cellblock_kind in
            *n*) _cellblock_kind=reference ;;
            *a*) _cellblock_kind=array ;;
            *A*) _cellblock_kind=map ;;
            *i*) _cellblock_kind=integer ;;
            *) _cellblock_kind=string ;;
        esac
        LC_ALL=C
        _cellblock_size=${#_cellblock_value}
        LC_ALL=C.UTF-8
        _cellblock_value=${_cellblock_value:0:101}
        _cellblock_value=${_cellblock_value//[[:cntrl:]]/�}
        ((${#_cellblock_value} > 100)) && _cellblock_value=${_cellblock_value:0:99}…
        _cellblock_fields+=(name "${_cellblock_each:0:200}" type "$_cellblock_kind" size "$_cellblock_size" preview "$_cellblock_value")
    done
    _cellblock_say variables total "$_cellblock_total" "${_cellblock_fields[@]}"
}

_cellblock_known=$(compgen -v)
_cellblock_known=" FUNCNAME LC_ALL ${_cellblock_known//$'\n'/ } "
printf '%s\n' "$_cellblock_line" >&0
_cellblock_inode 201
_cellblock_frames=$REPLY
unset REPLY
trap _cellblock_exit EXIT
trap - INT; trap '' INT URG
