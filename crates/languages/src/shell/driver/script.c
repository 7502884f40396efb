// Executes code, as Bash executes a script.

#include "driver.h"

// The shell itself, and not a process that it has forked.
static int shell;
// The signals that are blocked while nothing is executed; sigset_t has 128 bytes.
static byte mask[128];
static int is_executing;
// The process that has called the code's own handler of SIGINT for this interrupt.
static int interrupted;
// Whether the shell is to end the script for an interrupt. Its status does not say so where the command
// that it waited for was killed meanwhile.
static int is_stopped;

// Handles SIGURG, with which init interrupts the shell and the processes that it forks without
// executing anything else. It comes again and again until the code stops, and the code's own
// handler of SIGINT is called once.
static void interrupt(int signal) {
    (void)signal;
    if (!is_executing || signal_is_ignored(SIGINT))
        return;
    int caller = getpid();
    if (!signal_is_trapped(SIGINT)) {
        is_stopped = 1;
        sigint_sighandler(SIGINT);
    } else if (interrupted != caller)
        trap_handler(SIGINT);
    interrupted = caller;
}

// A stack of the shell's, unless the code has unset it.
static void *stack(const char *name) {
    Variable *variable = find_variable(name);
    return variable && variable->attributes & ARRAY ? variable->value : 0;
}

static void push(void *stack, const char *text) {
    if (stack)
        array_rshift(stack, 1, text);
}

static void pop(void *stack) {
    if (stack)
        array_shift(stack, 1, 1);
}

// What `BASH_SOURCE`, `FUNCNAME` and `BASH_LINENO` have of a script.
static void enter_script(const char *name) {
    push(stack("BASH_SOURCE"), name);
    push(stack("FUNCNAME"), "main");
    push(stack("BASH_LINENO"), "0");
}

static void leave_script(void) {
    pop(stack("BASH_SOURCE"));
    pop(stack("FUNCNAME"));
    pop(stack("BASH_LINENO"));
}

// Why a script stopped before its end.
typedef enum { NOT, EXITS, ENDS, INTERRUPTED } Stop;

// What a jump to the top level means for the script.
static Stop meaning_of(int jump) {
    switch (jump) {
    case DISCARD:
        return NOT;
    case EXITPROG: // also an interrupt, and in older versions `exit`
        return (is_stopped || last_command_exit_signal == SIGINT) && this_shell_builtin != exit_builtin
                   ? INTERRUPTED
                   : EXITS;
    case ERREXIT: // `set -e`, or what ends a script in POSIX mode
        return exit_immediately_on_error ? EXITS : ENDS;
    case FORCE_EOF: // an error that ends a script, as of `set -u`
        return ENDS;
    default:
        return EXITS;
    }
}

// Executes what the parser has as its input, as Bash executes a script.
static Stop execute(void) {
    Command *volatile command = 0;
    EOF_Reached = 0;
    while (!EOF_Reached) {
        int jump = __sigsetjmp(top_level, 0);
        if (jump) {
            // In a process that has not come to its own end of a jump yet.
            if (getpid() != shell)
                exit_shell(last_command_exit_value);
            Stop stop = meaning_of(jump);
            if (stop == EXITS)
                return stop;
            top_level_cleanup();
            if (variable_context && reset_local_contexts)
                reset_local_contexts();
            variable_context = 0;
            indirection_level = 1;
            sigprocmask(SIG_SETMASK, mask, 0);
            if (last_command_exit_value == 0)
                last_command_exit_value = 1;
            command = 0;
            if (stop != NOT)
                return stop;
        }
        executing = 0;
        if (parse_command() != 0)
            return NOT;
        command = global_command;
        global_command = 0;
        if (!command)
            continue;
        if (!read_but_dont_execute) {
            executing = 1;
            stdin_redir = 0;
            execute_command(command);
        }
        if (interrupt_state)
            throw_to_top_level();
        dispose_command(command);
        if (just_one_command) // `set -t`
            return EXITS;
    }
    return NOT;
}

void run(Request *request) {
    static int has_name;
    int status = last_command_exit_value;
    if (has_name)
        free(dollar_vars[0]);
    has_name = 1;
    dollar_vars[0] = strdup(request->name);
    remember_args(request->arguments, 1);
    enter_script(request->name);
    reset_parser();
    with_input_from_string(request->code, request->name);
    line_number = 0;
    indirection_level = 1;
    // Nothing could take it back.
    read_but_dont_execute = 0;
    interrupt_state = 0;
    interrupted = 0;
    is_stopped = 0;
    last_command_exit_value = status;
    if (!signal_is_trapped(SIGINT))
        set_signal_handler(SIGINT, sigint_sighandler);
    if (!signal_is_trapped(SIGURG))
        set_signal_handler(SIGURG, interrupt);
    is_executing = 1;
    say("started", request);

    Stop stop = execute();

    is_executing = 0;
    interrupt_state = 0;
    if (stop == EXITS) {
        say("ending", request);
        say_done(request);
        exit_shell(last_command_exit_value);
    }
    leave_script();
    if (stop == INTERRUPTED) {
        last_command_exit_value = 128 + SIGINT;
        set_pipestatus_from_exit(last_command_exit_value);
        say_interrupted(request);
    }
    say_done(request);
    free(request->code);
    free(request->name);
}

// Leaves what Bash executes at its start, the line that loads the driver.
void begin_scripts(void) {
    shell = getpid();
    top_level_cleanup();
    sigprocmask(SIG_SETMASK, 0, mask);
    leave_script();
    unset_bash_input(0);
    this_shell_builtin = 0;
    free(the_printed_command_except_trap);
    the_printed_command_except_trap = 0;
    last_command_exit_value = 0;
}
