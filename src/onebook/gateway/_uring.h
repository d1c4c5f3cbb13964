/* Many send(2) in one system call: as much of io_uring as that takes.
 *
 * A ring belongs to one thread. Sends are put one after the other and submitted together;
 * MSG_DONTWAIT makes each of them end before the call returns, so that nothing is ever left under
 * way. See io_uring(7): https://man7.org/linux/man-pages/man7/io_uring.7.html
 */
#include <errno.h>
#include <stddef.h>

struct uring {
    int fd;                /* -1 while it is not open */
    unsigned put;          /* sends put and not submitted yet */
    long long *results;    /* of the last submitted: bytes taken, or a negative errno */
    unsigned *sq_head, *sq_tail, *cq_head, *cq_tail, sq_mask, cq_mask;
    struct io_uring_sqe *sends;
    struct io_uring_cqe *ends;
    void *rings;
    size_t rings_size, sends_size;
};

#if defined(__linux__) && __has_include(<linux/io_uring.h>)

#include <linux/io_uring.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static void uring_close(struct uring *u) {
    if (u->fd < 0) return;
    if (u->sends) munmap(u->sends, u->sends_size);
    if (u->rings) munmap(u->rings, u->rings_size);
    free(u->results);
    close(u->fd);
    memset(u, 0, sizeof *u);
    u->fd = -1;
}

static void *uring_map(struct uring *u, size_t size, off_t what) {
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, u->fd, what);
    return at == MAP_FAILED ? NULL : at;
}

/* Open a ring for `entries` sends at once, a power of two; 0, or a negative errno. */
static int uring_open(struct uring *u, unsigned entries) {
    struct io_uring_params p;
    memset(&p, 0, sizeof p);
    memset(u, 0, sizeof *u);
    u->fd = (int)syscall(__NR_io_uring_setup, entries, &p);
    if (u->fd < 0) return -errno;
    size_t sq = p.sq_off.array + p.sq_entries * sizeof(unsigned);
    size_t cq = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    u->rings_size = sq > cq ? sq : cq;
    u->sends_size = p.sq_entries * sizeof(struct io_uring_sqe);
    /* Linux 5.7: it has sends, and one mapping for both rings. */
    if (p.features & IORING_FEAT_FAST_POLL) {
        u->rings = uring_map(u, u->rings_size, IORING_OFF_SQ_RING);
        u->sends = uring_map(u, u->sends_size, IORING_OFF_SQES);
        u->results = calloc(p.sq_entries, sizeof *u->results);
    }
    if (!u->rings || !u->sends || !u->results) {
        uring_close(u);
        return -ENOSYS;
    }
    char *at = u->rings;
    u->sq_head = (unsigned *)(at + p.sq_off.head);
    u->sq_tail = (unsigned *)(at + p.sq_off.tail);
    u->cq_head = (unsigned *)(at + p.cq_off.head);
    u->cq_tail = (unsigned *)(at + p.cq_off.tail);
    u->sq_mask = *(unsigned *)(at + p.sq_off.ring_mask);
    u->cq_mask = *(unsigned *)(at + p.cq_off.ring_mask);
    u->ends = (struct io_uring_cqe *)(at + p.cq_off.cqes);
    unsigned *order = (unsigned *)(at + p.sq_off.array);
    for (unsigned i = 0; i < p.sq_entries; i++) order[i] = i;
    return 0;
}

/* Put one more send, of data that stays until it is submitted; there is room for it. */
static void uring_put(struct uring *u, int fd, const void *data, size_t size) {
    struct io_uring_sqe *send = &u->sends[(*u->sq_tail + u->put) & u->sq_mask];
    memset(send, 0, sizeof *send);
    send->opcode = IORING_OP_SEND;
    send->fd = fd;
    send->addr = (unsigned long)data;
    send->len = (unsigned)size;
    send->msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL;
    send->user_data = u->put;
    u->results[u->put++] = 0;
}

static unsigned uring_reap(struct uring *u) {
    unsigned head = *u->cq_head, tail = __atomic_load_n(u->cq_tail, __ATOMIC_ACQUIRE);
    unsigned count = tail - head;
    for (; head != tail; head++) {
        const struct io_uring_cqe *end = &u->ends[head & u->cq_mask];
        u->results[end->user_data] = end->res;
    }
    __atomic_store_n(u->cq_head, head, __ATOMIC_RELEASE);
    return count;
}

/* Send all that was put; what the kernel refuses to begin has sent 0 bytes. */
static void uring_submit(struct uring *u) {
    unsigned begun = 0, ended = 0;
    __atomic_store_n(u->sq_tail, *u->sq_tail + u->put, __ATOMIC_RELEASE);
    while (begun < u->put) {
        long more = syscall(__NR_io_uring_enter, u->fd, u->put - begun, 0, IORING_ENTER_GETEVENTS, NULL, 0);
        if (more > 0) begun += (unsigned)more;
        else if (more == 0 || errno != EINTR) break;
    }
    /* Take back what was not begun: without a thread of its own the kernel reads in the call only. */
    __atomic_store_n(u->sq_tail, __atomic_load_n(u->sq_head, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
    while ((ended += uring_reap(u)) < begun)
        syscall(__NR_io_uring_enter, u->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
    u->put = 0;
}

#else

static void uring_close(struct uring *u) { u->fd = -1; }
static int uring_open(struct uring *u, unsigned entries) { u->fd = -1; return -ENOSYS; }
static void uring_put(struct uring *u, int fd, const void *data, size_t size) {}
static void uring_submit(struct uring *u) {}

#endif
