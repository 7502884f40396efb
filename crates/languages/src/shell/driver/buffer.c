// Bytes that grow.

#include "driver.h"

void append(Buffer *to, const void *bytes, size length) {
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

void append_text(Buffer *to, const char *text) {
    append(to, text, strlen(text));
}

void append_number(Buffer *to, size number) {
    char digits[24];
    int at = sizeof digits;
    do
        digits[--at] = '0' + number % 10;
    while (number /= 10);
    append(to, digits + at, sizeof digits - at);
}

void append_big_endian(Buffer *to, size number) {
    byte bytes[4] = {number >> 24, number >> 16, number >> 8, number};
    append(to, bytes, 4);
}
