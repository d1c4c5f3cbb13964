/* The floor under every fan-out: one thread, one send() per client, nothing else.
 *
 *     cc -O2 -shared -fPIC floor.c -o floor.so
 */
#include <sys/socket.h>

/* Send `size` bytes to each of `count` sockets; returns how many took all of it. */
int send_each(const int *sockets, int count, const char *data, long size) {
    int whole = 0;
    for (int i = 0; i < count; i++) whole += send(sockets[i], data, (size_t)size, MSG_NOSIGNAL) == size;
    return whole;
}
