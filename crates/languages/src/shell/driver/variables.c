// Describes the variables and functions of the code.

#include "driver.h"

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

void note_known(void) {
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

void describe(const Request *request) {
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
