/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the checks share: results, processes, buses, messages, and requests of io_uring. */
#ifndef SUPPORT_H
#define SUPPORT_H

#include <liburing.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <linux/sluice.h>

/* The smallest bus, which is full soonest: its largest message, and the number that it holds. */
#define CAPACITY 4096
#define LARGEST (CAPACITY / 2 - (int)sizeof(struct sluice_bus_frame))
#define HELD (CAPACITY / 256)

#define GRACE_MS 50	/* in which a request would complete that should not */
#define SKIPPED 77	/* exit status */

#define LENGTH(array) ((int)(sizeof(array) / sizeof(*(array))))

/* A way to set up a ring. */
struct setup {
	const char *name;
	unsigned int flags;
};

/* Of this process. */
extern const struct setup *setup;
extern const char *check_name;

/* ---- results: a failure ends all processes of the check, a skip this one ---- */

void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void skip(const char *reason) __attribute__((noreturn));
void expect(const char *what, long seen, long expected);
/* For a call that sets errno. */
long done(const char *call, long result);

/* ---- processes ---- */

/* fork(2). The child ends with this process, and after a time limit. */
pid_t start(void);
void expect_success(const char *what, pid_t child);

/* ---- buses; endpoints are in blocking mode ---- */

struct bus {
	char name[SLUICE_NAME_SIZE];
	int sender;
};

/* A new bus that permits all policies, with a sender. */
struct bus new_bus(unsigned int mode);
int subscribe(const struct bus *bus, unsigned int policy, unsigned int format);
int add_sender(const struct bus *bus, unsigned int format);
void destroy(const struct bus *bus);
struct sluice_bus_info state(int end);

/* ---- messages, without io_uring ---- */

/* The bytes of a message, which depend on its sender and number. */
struct content {
	__u32 sender;
	__u32 number;
	__u8 rest[256];
};

struct framed {
	struct sluice_bus_frame frame;
	struct content content;
};

/* Returns the length. */
size_t make_content(struct content *content, __u32 sender, __u32 number);
void expect_content(const struct content *seen, long length, __u32 sender, __u32 number);
void send_bytes(int sender, const void *bytes, size_t length);
void send_content(int sender, __u32 name, __u32 number);
/* Returns -errno. */
long receive_now(int subscriber, void *bytes, size_t room);
void expect_received(int subscriber, const char *text);
void expect_nothing(int subscriber);
/* Sends until the bus is full; and receives what that has sent. */
void fill(int sender);
void drain(int subscriber);

/* ---- requests ---- */

/* Names of requests. */
enum { READ = 100, WRITE, POLL, CANCEL };

struct completion {
	__u64 name;
	int result;
	unsigned int flags;
};

void new_ring(struct io_uring *ring);
/* The next request, to be filled in. */
struct io_uring_sqe *request(struct io_uring *ring);
void submit(struct io_uring *ring, int count);
void submit_read(struct io_uring *ring, int end, void *bytes, size_t room, __u64 name);
void submit_write(struct io_uring *ring, int end, const void *bytes, size_t length);
void submit_poll(struct io_uring *ring, int end, unsigned int events, bool multishot);
void submit_cancel(struct io_uring *ring, __u64 name);
/* The next completion. */
struct completion completion(struct io_uring *ring);
/* The result of this request, which must be the next to complete. */
int result(struct io_uring *ring, __u64 name);
/* As completion(), of this request, which remains armed. */
struct completion armed_completion(struct io_uring *ring, __u64 name);
void expect_pending(struct io_uring *ring);
/* The result of a request and that of its cancellation, in either order. */
int cancelled_result(struct io_uring *ring, __u64 name, int *cancellation);
/* Cancels a pending request. */
void cancel(struct io_uring *ring, __u64 name);

#endif
