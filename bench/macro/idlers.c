/* Many idle WebSocket clients in one process: they authenticate, answer pings, and come back.
 *
 *     idlers PORT CLIENTS HELLO COUNTERS FIRST AT_ONCE [shared]
 *
 * HELLO is a file as of sink.c. COUNTERS is a file of 64-bit numbers that others map and read, in the
 * order of the enum below. FIRST is the number of the first client: every 20,000 clients connect from
 * another loopback address, because an address has fewer ports than there are clients. AT_ONCE are
 * at most on the way from connect() to the answer to their key. A client whose connection ends returns
 * when the service told it to (`server_shutdown`), or after a second or two. It ends with its
 * standard input. With `shared` each socket is that of many clients: it says nothing by itself, and
 * answers the pings and close frames of all in their order.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clients.h"

enum { EVENTS = 512, BUFFER = 65536, PER_ADDRESS = 20000, TURN_MS = 5 };

enum {
    OPEN,        /* upgraded and not ended */
    READY,       /* of these: whose key was accepted */
    PONGS,       /* pings answered */
    ATTEMPTS,    /* connections tried */
    FAILED,      /* of these: ended before their key was accepted */
    SLOWEST_NS,  /* longest time from connect() to the answer to the key */
    LAST_NS,     /* monotonic time of the last such answer */
    TOLD,        /* `server_shutdown` received */
    BYTES,       /* received after the upgrade */
    COUNTERS
};

enum state { WAITING, CONNECTING, UPGRADING, AUTHENTICATING, DONE };

struct client {
    int fd;
    enum state state;
    uint64_t began_ns; /* of the attempt */
    uint64_t due_ns;   /* of the next attempt */
    char **hello;      /* lines, then NULL */
    char *rest;        /* of an incomplete frame or answer */
    uint32_t held;
};

static volatile uint64_t *counters;
static struct client *clients;
static int count, first, port, at_once, on_the_way, epoll, shared;

static int transmit(int fd, unsigned char opcode, const char *data, size_t size) {
    char frame[LINE + HEAD_MAX];
    size = framed(frame, opcode, data, size);
    return send(fd, frame, size, MSG_NOSIGNAL) == (ssize_t)size;
}

static void leave(struct client *client) {
    uint64_t now = nanoseconds();
    if (client->state != DONE) {
        counters[FAILED]++;
        on_the_way--;
    } else {
        counters[READY]--;
    }
    if (client->state >= AUTHENTICATING) counters[OPEN]--;
    close(client->fd);
    client->state = WAITING;
    client->held = 0;
    if (client->due_ns < now) client->due_ns = now + 1000000000u + (uint64_t)rand() % 1000000000u;
}

static void enter(struct client *client, int number) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)}, from = to;
    struct epoll_event event = {.events = EPOLLOUT, .data.u32 = (uint32_t)number};
    int yes = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0) die("socket");
    from.sin_port = 0;
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 256 + (uint32_t)((first + number) / PER_ADDRESS));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (bind(fd, (struct sockaddr *)&from, sizeof from)) die("bind");
    client->fd = fd;
    client->began_ns = nanoseconds();
    client->state = CONNECTING;
    counters[ATTEMPTS]++;
    on_the_way++;
    if (connect(fd, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS) {
        leave(client);
    } else if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) {
        die("epoll");
    }
}

static void say_hello(struct client *client) {
    for (char **line = client->hello; *line; line++) transmit(client->fd, 1, *line, strlen(*line));
}

static void text(struct client *client, const char *data, size_t size) {
    const char *in = memmem(data, size, "\"reconnect_in_ms\":", 18);
    uint64_t now = nanoseconds();
    if (in) {
        counters[TOLD]++;
        client->due_ns = now + strtoull(in + 18, NULL, 10) * 1000000u;
    } else if (client->state == AUTHENTICATING && memmem(data, size, "\"session_id\"", 12)) {
        client->state = DONE;
        on_the_way--;
        counters[READY]++;
        counters[LAST_NS] = now;
        if (now - client->began_ns > counters[SLOWEST_NS])
            counters[SLOWEST_NS] = now - client->began_ns;
    }
}

/* Returns the bytes of a complete frame that were handled, 0 for none, -1 for a close frame. */
static ssize_t frame(struct client *client, const char *data, size_t size) {
    const unsigned char *at = (const unsigned char *)data;
    size_t head = 2, length;
    if (size < 2) return 0;
    if (shared && !memcmp(data, "HT", 2)) { /* the answer to an upgrade */
        const char *end = memmem(data, size, "\r\n\r\n", 4);
        return end ? end + 4 - data : 0;
    }
    length = at[1] & 0x7f;
    if (length == 126) {
        if (size < 4) return 0;
        length = (size_t)at[2] << 8 | at[3];
        head = 4;
    } else if (length == 127) {
        fprintf(stderr, "a frame of more than 64 KiB\n");
        exit(1);
    }
    if (size < head + length) return 0;
    switch (at[0] & 0x0f) {
    case 1: text(client, data + head, length); break;
    case 2: break;
    case 8:
        transmit(client->fd, 8, data + head, length);
        if (!shared) return -1;
        break;
    case 9:
        if (transmit(client->fd, 10, data + head, length)) counters[PONGS]++;
        break;
    default: fprintf(stderr, "a frame of an unknown kind\n"); exit(1);
    }
    return (ssize_t)(head + length);
}

static void received(struct client *client) {
    static char buffer[2 * BUFFER];
    size_t size = client->held, start = 0;
    if (size) memcpy(buffer, client->rest, size);
    ssize_t came = recv(client->fd, buffer + size, BUFFER, MSG_DONTWAIT);
    if (came < 0 && errno == EAGAIN) return;
    if (came <= 0) {
        leave(client);
        return;
    }
    size += (size_t)came;
    if (client->state == UPGRADING) {
        char *end = memmem(buffer, size, "\r\n\r\n", 4);
        if (end) {
            if (!memmem(buffer, 16, " 101 ", 5)) {
                leave(client);
                return;
            }
            start = (size_t)(end - buffer) + 4;
            client->state = AUTHENTICATING;
            counters[OPEN]++;
            say_hello(client);
        }
    } else {
        counters[BYTES] += (uint64_t)came;
    }
    while (client->state >= AUTHENTICATING && start < size) {
        ssize_t used = frame(client, buffer + start, size - start);
        if (used < 0) {
            leave(client);
            return;
        }
        if (!used) break;
        start += (size_t)used;
    }
    client->held = (uint32_t)(size - start);
    free(client->rest);
    client->rest = client->held ? malloc(client->held) : NULL;
    if (client->held) memcpy(client->rest, buffer + start, client->held);
}

static void connected(struct client *client, int number) {
    static const char request[] =
        "GET /api/v1/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)number};
    if (shared) {
        client->state = DONE;
        on_the_way--;
        counters[OPEN]++;
        counters[READY]++;
    } else if (send(client->fd, request, sizeof request - 1, MSG_NOSIGNAL) != sizeof request - 1) {
        leave(client);
        return;
    } else {
        client->state = UPGRADING;
    }
    if (epoll_ctl(epoll, EPOLL_CTL_MOD, client->fd, &event)) die("epoll");
}

/* The hellos of a file, one after the other: pointers to their lines, each hello ends with NULL. */
static char ***read_hellos(const char *path, int *hellos) {
    FILE *file = fopen(path, "r");
    char line[LINE], ***all = calloc((size_t)count + 1, sizeof *all);
    int lines = 0;
    if (!file) die(path);
    *hellos = 0;
    while (*hellos < count && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (!*line) {
            ++*hellos;
            lines = 0;
            continue;
        }
        all[*hellos] = realloc(all[*hellos], (size_t)(lines + 2) * sizeof **all);
        all[*hellos][lines++] = strdup(line);
        all[*hellos][lines] = NULL;
    }
    fclose(file);
    return all;
}

int main(int words_count, char **words) {
    if (words_count != 7 && words_count != 8) {
        fprintf(stderr, "idlers PORT CLIENTS HELLO COUNTERS FIRST AT_ONCE [shared]\n");
        return 2;
    }
    shared = words_count == 8;
    port = atoi(words[1]), count = atoi(words[2]), first = atoi(words[5]), at_once = atoi(words[6]);
    int hellos, file = open(words[4], O_RDWR), next = 0;
    char ***hello = read_hellos(words[3], &hellos);
    counters = mmap(NULL, COUNTERS * sizeof *counters, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (counters == MAP_FAILED) die(words[4]);
    epoll = epoll_create1(0);
    clients = calloc((size_t)count, sizeof *clients);
    for (int i = 0; i < count; i++) clients[i].hello = hello[i % hellos];
    struct epoll_event input = {.events = EPOLLIN, .data.u32 = UINT32_MAX}, events[EVENTS];
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, 0, &input)) die("epoll");
    for (;;) {
        uint64_t now = nanoseconds();
        for (int tried = 0; tried < count && on_the_way < at_once; tried++, next = (next + 1) % count)
            if (clients[next].state == WAITING && clients[next].due_ns <= now)
                enter(&clients[next], next);
        int n = epoll_wait(epoll, events, EVENTS, TURN_MS);
        if (n < 0 && errno != EINTR) die("epoll_wait");
        for (int i = 0; i < n; i++) {
            if (events[i].data.u32 == UINT32_MAX) return 0;
            struct client *client = &clients[events[i].data.u32];
            if (client->state == CONNECTING && events[i].events & EPOLLOUT &&
                !(events[i].events & (EPOLLERR | EPOLLHUP)))
                connected(client, (int)events[i].data.u32);
            else if (client->state != WAITING)
                received(client);
        }
    }
}
