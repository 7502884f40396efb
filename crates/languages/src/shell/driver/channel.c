// The channel: requests from one pipe, frames to another.
//
// The format is in crates/languages/src/frames/mod.rs.

#include "driver.h"

static int requests, frames;

static size big_endian(const byte *bytes) {
    return (size)bytes[0] << 24 | (size)bytes[1] << 16 | (size)bytes[2] << 8 | bytes[3];
}

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

void open_channel(void) {
    // Where the limit is 256, Bash has the last one for the file that it reads, for now.
    requests = moved(3, 3);
    frames = moved(4, 2);
}

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

// False at the end of the requests. Whoever writes them is the supervisor, whose lengths are right.
int receive(Request *request) {
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

void add_field(Buffer *frame, const char *key, const char *value) {
    append_text(frame, "t");
    byte length = strlen(key);
    append(frame, &length, 1);
    append_big_endian(frame, strlen(value));
    append_text(frame, key);
    append_text(frame, value);
}

Buffer begin_frame(const char *kind, const Request *of) {
    Buffer frame = {0, 0, 0};
    append_big_endian(&frame, 0);
    add_field(&frame, "kind", kind);
    add_field(&frame, "execution", of->execution);
    return frame;
}

// Where the channel is closed, the code goes on without.
void send(Buffer *frame) {
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

void say(const char *kind, const Request *of) {
    Buffer frame = begin_frame(kind, of);
    send(&frame);
}

void say_done(const Request *of) {
    Buffer frame = begin_frame("done", of), status = {0, 0, 0};
    append_number(&status, last_command_exit_value);
    add_field(&frame, "status", (char *)status.bytes);
    free(status.bytes);
    send(&frame);
}

void say_interrupted(const Request *of) {
    Buffer frame = begin_frame("error", of);
    add_field(&frame, "name", "Interrupted");
    add_field(&frame, "message", "the execution was interrupted");
    send(&frame);
}
