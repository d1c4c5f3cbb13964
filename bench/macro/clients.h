/* What the WebSocket clients of sink.c and idlers.c share. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE = 4096, HEAD_MAX = 8 };

static uint64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

/* Put a client's frame of at most LINE bytes of data into `frame`; returns its size. */
static size_t framed(char *frame, unsigned char opcode, const char *data, size_t size) {
    size_t head = size < 126 ? 2 : 4;
    frame[0] = (char)(0x80 | opcode);
    frame[1] = (char)(0x80 | (size < 126 ? size : 126));
    if (head == 4) {
        frame[2] = (char)(size >> 8);
        frame[3] = (char)size;
    }
    memset(frame + head, 0, 4); /* a mask of zeros leaves the data as it is */
    memcpy(frame + head + 4, data, size);
    return head + 4 + size;
}
