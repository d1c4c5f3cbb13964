/* Many WebSocket clients in one process that count bytes and copy nothing.
 *
 *     sink PORT CLIENTS HELLO COUNTERS [deflate]
 *
 * HELLO is a file: for each client in turn, lines of text messages to send after the handshake, an
 * empty line after each client's last; it starts over when it ends. COUNTERS is a file of three
 * 64-bit numbers that others map and read: bytes received since the handshakes, clients connected,
 * and the monotonic time of the last arrival in nanoseconds. `deflate` offers permessage-deflate and
 * insists on it. It ends with its standard input.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clients.h"

enum { EVENTS = 512, DISCARD = 1 << 20 };

enum { BYTES, CLIENTS, LAST_NS, COUNTERS };

static void send_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent <= 0) die("send");
        data += sent;
        size -= (size_t)sent;
    }
}

static void send_text(int fd, const char *text, size_t size) {
    char frame[LINE + HEAD_MAX];
    send_all(fd, frame, framed(frame, 1, text, size));
}

static int connected(int port, int deflate) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    char answer[4096];
    size_t got = 0;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    char request[512];
    int size = snprintf(request, sizeof request,
                        "GET /api/v1/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
                        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n%s"
                        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
                        deflate ? "Sec-WebSocket-Extensions: permessage-deflate\r\n" : "");
    send_all(fd, request, (size_t)size);
    do { /* byte by byte, so that no frame behind the answer is swallowed */
        if (got == sizeof answer - 1 || recv(fd, answer + got, 1, 0) != 1) die("handshake");
        answer[++got] = 0;
    } while (!strstr(answer + (got > 4 ? got - 4 : 0), "\r\n\r\n"));
    if (!strstr(answer, " 101 ") || (deflate && !strstr(answer, "permessage-deflate"))) {
        fprintf(stderr, "refused: %.60s\n", answer);
        exit(1);
    }
    return fd;
}

static void say_hello(int fd, FILE *hello) {
    char line[LINE];
    int said = 0;
    for (;;) {
        if (!fgets(line, sizeof line, hello)) {
            rewind(hello);
            if (said || !fgets(line, sizeof line, hello)) return;
        }
        size_t size = strcspn(line, "\n");
        if (!size) return;
        send_text(fd, line, size);
        said = 1;
    }
}

int main(int count, char **words) {
    if (count < 5) {
        fprintf(stderr, "sink PORT CLIENTS HELLO COUNTERS [deflate]\n");
        return 2;
    }
    int clients = atoi(words[2]), poll = epoll_create1(0), file = open(words[4], O_RDWR);
    FILE *hello = fopen(words[3], "r");
    if (!hello) die(words[3]);
    volatile uint64_t *counters =
        mmap(NULL, COUNTERS * sizeof *counters, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (counters == MAP_FAILED) die(words[4]);
    for (int i = 0; i < clients; i++) {
        struct epoll_event event = {.events = EPOLLIN};
        event.data.fd = connected(atoi(words[1]), count > 5);
        say_hello(event.data.fd, hello);
        if (epoll_ctl(poll, EPOLL_CTL_ADD, event.data.fd, &event)) die("epoll");
        counters[CLIENTS]++;
    }
    struct epoll_event input = {.events = EPOLLIN, .data.fd = 0};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, 0, &input)) die("epoll");
    struct epoll_event events[EVENTS];
    for (;;) {
        int n = epoll_wait(poll, events, EVENTS, -1);
        uint64_t counted = 0;
        if (n < 0 && errno != EINTR) die("epoll_wait");
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == 0) return 0;
            ssize_t size = recv(fd, NULL, DISCARD, MSG_TRUNC | MSG_DONTWAIT);
            if (size > 0) {
                counted += (uint64_t)size;
            } else if (size == 0 || errno != EAGAIN) {
                epoll_ctl(poll, EPOLL_CTL_DEL, fd, NULL);
                counters[CLIENTS]--;
            }
        }
        counters[LAST_NS] = nanoseconds();
        counters[BYTES] += counted;
    }
}
