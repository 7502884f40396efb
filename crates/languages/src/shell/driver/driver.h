// What the parts of the driver share.
//
// No other headers are included, since Bash's are not part of its package and the C library may be
// any: the declarations below are those of Bash 4.4 to 5.3, on Linux.

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
extern int EOF_Reached, indirection_level, line_number, executing;
extern int last_command_exit_value, last_command_exit_signal, stdin_redir, variable_context;
extern int read_but_dont_execute, exit_immediately_on_error, just_one_command;
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

// Bytes that grow (buffer.c), with a NUL after them once there are any.
typedef struct {
    byte *bytes;
    size length, room;
} Buffer;

void append(Buffer *, const void *, size);
void append_text(Buffer *, const char *);
void append_number(Buffer *, size);
void append_big_endian(Buffer *, size);

// The channel (channel.c).
typedef struct {
    char execution[24];
    int is_description;
    char *code;
    char *name;
    Words *arguments;
} Request;

void open_channel(void);
int receive(Request *);
Buffer begin_frame(const char *kind, const Request *);
void add_field(Buffer *, const char *key, const char *value);
void send(Buffer *);
void say(const char *kind, const Request *);
void say_done(const Request *);
void say_interrupted(const Request *);

// Code (script.c).
void begin_scripts(void);
void run(Request *);

// The variables of the code (variables.c).
void note_known(void);
void describe(const Request *);
