// The driver of a shell that executes one request after the other, inside of Bash.
//
// Bash loads it as it loads a builtin (`enable -f`), and the function that Bash calls while it does
// so never returns: it is the shell's main loop from then on. So nothing of the driver is a command,
// a function, a variable or a builtin. What the code sets for its commands (traps, options, IFS,
// functions, aliases) does not reach the driver, and the code sees nothing of it.

#include "driver.h"

#define SHOWN __attribute__((visibility("default")))

// Bash calls this while it executes `enable -f driver.so cellblock`, once it has found the next one.
SHOWN int cellblock_builtin_load(char *name) {
    (void)name;
    Request request;
    open_channel();
    begin_scripts();
    note_known();
    while (receive(&request)) {
        if (request.is_description)
            describe(&request);
        else
            run(&request);
    }
    exit_shell(last_command_exit_value);
}

// A builtin, as Bash describes one.
SHOWN struct {
    char *name;
    void *function;
    int flags;
    char *const *long_text;
    const char *short_text;
    char *handle;
} cellblock_struct = {"cellblock", 0, 0, 0, 0, 0};
