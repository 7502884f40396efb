// The driver of a shell that executes one request after the other, inside of Bash.
//
// Bash loads it as it loads a builtin (`enable -f`), and the function that Bash calls while it does
// so never returns: it is the shell's main loop from then on. So nothing of the driver is a command,
// a function, a variable or a builtin. What the code sets for its commands (traps, options, IFS,
// functions, aliases) does not reach the driver, and the code sees nothing of it.
//
// There are no headers, since Bash's are not part of its package and the C library may be any: the
// declarations below are those of Bash 4.4 to 5.3, on Linux.

typedef unsigned long size;
typedef unsigned char byte;

// From the C library.
long read(int, void *, size);
long write(int, const void *, size);
int close(int);
int fcntl(int, int, ...);
int getpid(void);
int getrlimit(int, size *);
void *malloc(size);
void free(void *);
char *strdup(const char *);
int strcmp(const char *, const char *);
size strlen(const char *);
void *memcpy(void *, const void *, size);
int *__errno_location(void);
int __sigsetjmp(void *, int) __attribute__((returns_twice));
int sigprocmask(int, const void *, void *);

enum { EINTR = 4, F_DUPFD_CLOEXEC = 1030, RLIMIT_NOFILE = 7, SIG_SETMASK = 2, SIGINT = 2, SIGURG = 23 };

// From Bash.
typedef struct {
    char *name;
    char *value;
    char *exported;
    void *dynamic;
    void *assign;
    int attributes;
    int context;
} Variable;
typedef struct command Command;
typedef struct words Words;
typedef void Handler(int);

enum { ARRAY = 0x4, INTEGER = 0x10, MAP = 0x40, REFERENCE = 0x800 };
// Why it jumps to the top level.
enum { FORCE_EOF = 1, DISCARD, EXITPROG, ERREXIT, SIGEXIT, EXITBLTIN };

extern char top_level[];
extern int EOF_Reached, indirection_level, line_number, executing, interactive_shell;
extern int last_command_exit_value, last_command_exit_signal, stdin_redir, variable_context;
extern int read_but_dont_execute, exit_immediately_on_error;
extern volatile int interrupt_state;
extern Command *global_command;
extern char *dollar_vars[], *the_printed_command_except_trap;
extern int (*this_shell_builtin)(Words *);
int exit_builtin(Words *);
int parse_command(void);
int execute_command(Command *);
void dispose_command(Command *);
void with_input_from_string(char *, const char *);
void unset_bash_input(int);
void reset_parser(void);
void top_level_cleanup(void);
void throw_to_top_level(void);
void exit_shell(int) __attribute__((noreturn));
void reset_local_contexts(void) __attribute__((weak));
int set_pipestatus_from_exit(int);
Handler *set_signal_handler(int, Handler *);
Handler sigint_sighandler, trap_handler;
int signal_is_trapped(int), signal_is_ignored(int);
Words *make_word_list(void *, Words *);
void *make_word(const char *);
void remember_args(Words *, int);
Variable *find_variable(const char *);
Variable **all_shell_variables(void), **all_visible_variables(void), **all_visible_functions(void);
int array_rshift(void *, int, const char *);
void *array_shift(void *, int, int);
char *array_to_assign(void *, int), *assoc_to_assign(void *, int);
int ansic_shouldquote(const char *);
char *ansic_quote(const char *, int, int *), *sh_double_quote(const char *);

// The descriptors of the channel: requests, and frames.
static int requests, frames;
// The shell itself, and not a process that it has forked.
static int shell;
// The signals that are blocked while nothing is executed; sigset_t has 128 bytes.
static byte mask[128];
static int is_executing;
// The process that has called the code's own handler of SIGINT for this interrupt.
static int interrupted;

// ---- Bytes that grow ----

typedef struct {
    byte *bytes;
    size length, room;
} Buffer;

static void append(Buffer *to, const void *bytes, size length) {
    if (to->length + length + 1 > to->room) {
        size room = 2 * (to->length + length) + 64;
        byte *grown = malloc(room);
        if (!grown)
            exit_shell(1);
        if (to->length)
            memcpy(grown, to->bytes, to->length);
        free(to->bytes);
        to->bytes = grown;
        to->room = room;
    }
    if (length)
        memcpy(to->bytes + to->length, bytes, length);
    to->length += length;
    to->bytes[to->length] = 0;
}

static void append_text(Buffer *to, const char *text) {
    append(to, text, strlen(text));
}

static void append_number(Buffer *to, size number) {
    char digits[24];
    int at = sizeof digits;
    do
        digits[--at] = '0' + number % 10;
    while (number /= 10);
    append(to, digits + at, sizeof digits - at);
}

static void append_big_endian(Buffer *to, size number) {
    byte bytes[4] = {number >> 24, number >> 16, number >> 8, number};
    append(to, bytes, 4);
}

static size big_endian(const byte *bytes) {
    return (size)bytes[0] << 24 | (size)bytes[1] << 16 | (size)bytes[2] << 8 | bytes[3];
}

// ---- Requests ----

// False at the end of the requests.
static int receive_bytes(byte *to, size length) {
    while (length) {
        long count = read(requests, to, length);
        if (count < 0 && *__errno_location() == EINTR)
            continue;
        if (count <= 0)
            return 0;
        to += count;
        length -= count;
    }
    return 1;
}

typedef struct {
    char execution[24];
    int is_description;
    char *code;
    char *name;
    Words *arguments;
} Request;

// A text of a request, without NUL, which nothing in Bash can hold.
static char *text_of(const byte *bytes, size length) {
    char *text = malloc(length + 1);
    if (!text)
        exit_shell(1);
    size kept = 0;
    for (size at = 0; at < length; at++)
        if (bytes[at])
            text[kept++] = bytes[at];
    text[kept] = 0;
    return text;
}

static Words *reversed(Words *);

// False at the end of the requests. Whoever writes them is the supervisor, whose lengths are right.
static int receive(Request *request) {
    byte head[4];
    if (!receive_bytes(head, 4))
        return 0;
    size length = big_endian(head);
    byte *message = malloc(length + 1);
    if (!message)
        exit_shell(1);
    if (!receive_bytes(message, length))
        return 0;
    *request = (Request){{0}, 0, 0, 0, 0};
    for (size at = 0; at + 6 <= length;) {
        size key_length = message[at + 1], value_length = big_endian(message + at + 2);
        char *key = text_of(message + at + 6, key_length);
        char *value = text_of(message + at + 6 + key_length, value_length);
        at += 6 + key_length + value_length;
        if (!strcmp(key, "execution") && strlen(value) < sizeof request->execution)
            memcpy(request->execution, value, strlen(value) + 1);
        else if (!strcmp(key, "work"))
            request->is_description = !strcmp(value, "describe");
        else if (!strcmp(key, "argument"))
            request->arguments = make_word_list(make_word(value), request->arguments);
        else if (!strcmp(key, "code"))
            request->code = strdup(value);
        else if (!strcmp(key, "name"))
            request->name = strdup(value);
        free(key);
        free(value);
    }
    free(message);
    request->arguments = reversed(request->arguments);
    return 1;
}

struct words {
    Words *next;
    void *word;
};

static Words *reversed(Words *list) {
    Words *before = 0;
    while (list) {
        Words *next = list->next;
        list->next = before;
        before = list;
        list = next;
    }
    return before;
}

// ---- Frames ----

static void add_field(Buffer *frame, const char *key, const char *value) {
    append_text(frame, "t");
    byte length = strlen(key);
    append(frame, &length, 1);
    append_big_endian(frame, strlen(value));
    append_text(frame, key);
    append_text(frame, value);
}

static Buffer begin_frame(const char *kind, const Request *of) {
    Buffer frame = {0, 0, 0};
    append_big_endian(&frame, 0);
    add_field(&frame, "kind", kind);
    add_field(&frame, "execution", of->execution);
    return frame;
}

// Where the channel is closed, the code goes on without.
static void send(Buffer *frame) {
    Buffer length = {0, 0, 0};
    append_big_endian(&length, frame->length - 4);
    memcpy(frame->bytes, length.bytes, 4);
    free(length.bytes);
    for (size at = 0; at < frame->length;) {
        long count = write(frames, frame->bytes + at, frame->length - at);
        if (count < 0 && *__errno_location() != EINTR)
            break;
        at += count > 0 ? count : 0;
    }
    free(frame->bytes);
}

static void say(const char *kind, const Request *of) {
    Buffer frame = begin_frame(kind, of);
    send(&frame);
}

static void say_done(const Request *of) {
    Buffer frame = begin_frame("done", of), status = {0, 0, 0};
    append_number(&status, last_command_exit_value);
    add_field(&frame, "status", (char *)status.bytes);
    free(status.bytes);
    send(&frame);
}

static void say_interrupted(const Request *of) {
    Buffer frame = begin_frame("error", of);
    add_field(&frame, "name", "Interrupted");
    add_field(&frame, "message", "the execution was interrupted");
    send(&frame);
}

// ---- Interrupts ----

// Handles SIGURG, with which init interrupts the shell and the processes that it forks without
// executing anything else. It comes again and again until the code stops, and the code's own
// handler of SIGINT is called once.
static void interrupt(int signal) {
    (void)signal;
    if (!is_executing || signal_is_ignored(SIGINT))
        return;
    int caller = getpid();
    if (!signal_is_trapped(SIGINT))
        sigint_sighandler(SIGINT);
    else if (interrupted != caller)
        trap_handler(SIGINT);
    interrupted = caller;
}

// ---- Code ----

// What `BASH_SOURCE`, `FUNCNAME` and `BASH_LINENO` have of a script.
static void enter_script(const char *name) {
    array_rshift(find_variable("BASH_SOURCE")->value, 1, name);
    array_rshift(find_variable("FUNCNAME")->value, 1, "main");
    array_rshift(find_variable("BASH_LINENO")->value, 1, "0");
}

static void leave_script(void) {
    array_shift(find_variable("BASH_SOURCE")->value, 1, 1);
    array_shift(find_variable("FUNCNAME")->value, 1, 1);
    array_shift(find_variable("BASH_LINENO")->value, 1, 1);
}

// Why a script stopped before its end.
typedef enum { NOT, EXITS, ENDS, INTERRUPTED } Stop;

// What a jump to the top level means for the script.
static Stop meaning_of(int jump) {
    switch (jump) {
    case DISCARD:
        return NOT;
    case EXITPROG: // also an interrupt, and in older versions `exit`
        return last_command_exit_signal == SIGINT && this_shell_builtin != exit_builtin ? INTERRUPTED
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
    }
    return NOT;
}

static void run(Request *request) {
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

// ---- Variables ----

enum { MOST_NAMES = 1000, NAME_LENGTH = 200, PREVIEW_LENGTH = 100 };

// The names of the variables that were there before the code.
static char **known;

static int is_known(const char *name) {
    // These come with the first command, or function.
    if (!strcmp(name, "_") || !strcmp(name, "PIPESTATUS") || !strcmp(name, "FUNCNAME"))
        return 1;
    for (char **each = known; each && *each; each++)
        if (!strcmp(*each, name))
            return 1;
    return 0;
}

static void note_known(void) {
    Variable **all = all_shell_variables();
    size count = 0;
    while (all && all[count])
        count++;
    known = malloc((count + 1) * sizeof *known);
    if (!known)
        exit_shell(1);
    for (size at = 0; at < count; at++)
        known[at] = strdup(all[at]->name);
    known[count] = 0;
    free(all);
}

// Bytes of the first characters of a text.
static size bytes_of(const char *text, size characters) {
    size at = 0;
    while (text[at] && characters--)
        do
            at++;
        while ((text[at] & 0xC0) == 0x80);
    return at;
}

static void add_name(Buffer *frame, const char *name) {
    Buffer cut = {0, 0, 0};
    append(&cut, name, bytes_of(name, NAME_LENGTH));
    add_field(frame, "name", (char *)cut.bytes);
    free(cut.bytes);
}

// The value as `declare -p` has it, or nothing.
static char *value_of(const Variable *variable) {
    if (!variable->value)
        return 0;
    if (variable->attributes & ARRAY)
        return array_to_assign(variable->value, 0);
    if (variable->attributes & MAP)
        return assoc_to_assign(variable->value, 0);
    return ansic_shouldquote(variable->value) ? ansic_quote(variable->value, 0, 0)
                                              : sh_double_quote(variable->value);
}

static void add_preview(Buffer *frame, const char *text) {
    Buffer shown = {0, 0, 0};
    size all = bytes_of(text, PREVIEW_LENGTH);
    int is_cut = text[all] != 0;
    size kept = is_cut ? bytes_of(text, PREVIEW_LENGTH - 1) : all;
    append(&shown, "", 0);
    for (size at = 0; at < kept; at++) {
        byte each = text[at];
        if (each < 0x20 || each == 0x7F)
            append_text(&shown, "\xEF\xBF\xBD");
        else
            append(&shown, &each, 1);
    }
    if (is_cut)
        append_text(&shown, "\xE2\x80\xA6");
    add_field(frame, "preview", (char *)shown.bytes);
    free(shown.bytes);
}

static void add_variable(Buffer *frame, const Variable *variable) {
    int attributes = variable->attributes;
    char *value = value_of(variable);
    Buffer length = {0, 0, 0};
    add_name(frame, variable->name);
    add_field(frame, "type",
              attributes & REFERENCE ? "reference"
              : attributes & ARRAY   ? "array"
              : attributes & MAP     ? "map"
              : attributes & INTEGER ? "integer"
                                     : "string");
    append_number(&length, value ? strlen(value) : 0);
    add_field(frame, "size", (char *)length.bytes);
    free(length.bytes);
    add_preview(frame, value ? value : "");
    free(value);
}

static void add_function(Buffer *frame, const char *name) {
    Buffer shown = {0, 0, 0};
    append(&shown, name, bytes_of(name, PREVIEW_LENGTH - 10));
    append_text(&shown, "()");
    add_name(frame, name);
    add_field(frame, "type", "function");
    add_preview(frame, (char *)shown.bytes);
    free(shown.bytes);
}

static void describe(const Request *request) {
    Variable **variables = all_visible_variables(), **functions = all_visible_functions();
    Buffer list = {0, 0, 0}, total = {0, 0, 0};
    size count = 0;
    append(&list, "", 0);
    for (Variable **each = variables; each && *each; each++)
        if (!is_known((*each)->name) && count++ < MOST_NAMES)
            add_variable(&list, *each);
    for (Variable **each = functions; each && *each; each++)
        if (count++ < MOST_NAMES)
            add_function(&list, (*each)->name);
    append_number(&total, count);
    say("started", request);
    Buffer frame = begin_frame("variables", request);
    add_field(&frame, "total", (char *)total.bytes);
    append(&frame, list.bytes, list.length);
    send(&frame);
    say("done", request);
    free(variables);
    free(functions);
    free(list.bytes);
    free(total.bytes);
}

// ---- The beginning ----

// Moves a descriptor of the channel to a number that code does not use. No program that the code
// executes has it.
static int moved(int fd, int place) {
    size limit[2] = {256, 256};
    getrlimit(RLIMIT_NOFILE, limit);
    size top = limit[0] < 65536 ? limit[0] : 65536;
    int to = fcntl(fd, F_DUPFD_CLOEXEC, (int)top - place);
    if (to < 0)
        to = fcntl(fd, F_DUPFD_CLOEXEC, 10);
    close(fd);
    return to;
}

// Bash calls this while it executes `enable -f driver.so cellblock`, once it has found the next one.
int cellblock_builtin_load(char *name) {
    (void)name;
    Request request;
    shell = getpid();
    top_level_cleanup();
    requests = moved(3, 2);
    frames = moved(4, 1);
    sigprocmask(SIG_SETMASK, 0, mask);
    leave_script();
    unset_bash_input(0);
    this_shell_builtin = 0;
    free(the_printed_command_except_trap);
    the_printed_command_except_trap = 0;
    last_command_exit_value = 0;
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
struct {
    char *name;
    void *function;
    int flags;
    char *const *long_text;
    const char *short_text;
    char *handle;
} cellblock_struct = {"cellblock", 0, 0, 0, 0, 0};
