// SPDX-License-Identifier: MIT OR Apache-2.0
#define _GNU_SOURCE
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT 60	/* seconds of one check */

/* ---- results ---- */

void fail(const char *format, ...)
{
	va_list arguments;
	char text[256];

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	dprintf(STDERR_FILENO, "%s (%s): %s\n", check_name, setup->name, text);
	/* Others of this check may wait for this process. */
	kill(0, SIGTERM);
	_exit(EXIT_FAILURE);
}

void skip(const char *reason)
{
	dprintf(STDOUT_FILENO, "SKIPPED %s (%s): %s\n", check_name, setup->name, reason);
	_exit(SKIPPED);
}

void expect(const char *what, long seen, long expected)
{
	if (seen != expected)
		fail("%s: expected %ld, saw %ld", what, expected, seen);
}

long done(const char *call, long result)
{
	if (result < 0)
		fail("%s: %s", call, strerror(errno));
	return result;
}

/* ---- processes ---- */

pid_t start(void)
{
	pid_t child = done("fork", fork());

	if (!child) {
		done("prctl", prctl(PR_SET_PDEATHSIG, SIGKILL));
		alarm(LIMIT);
	}
	return child;
}

void expect_success(const char *what, pid_t child)
{
	int status;

	done("waitpid", waitpid(child, &status, 0));
	if (status)
		fail("%s ended with wait status %#x", what, status);
}

/* ---- buses ---- */

static int ctl(void)
{
	static int fd = -1;

	if (fd < 0)
		fd = done("open /dev/sluice/ctl", open("/dev/sluice/ctl", O_RDWR | O_CLOEXEC));
	return fd;
}

static int open_end(const struct bus *bus, unsigned int flags,
		    const struct sluice_bus_params *params)
{
	struct sluice_open open = {
		.size = sizeof(open),
		.kind = SLUICE_KIND_BUS,
		.flags = flags,
		.scope_fd = SLUICE_SCOPE_SELF,
		.mode = 0600,
		.capacity = CAPACITY,
		.params = (unsigned long)params,
	};

	memcpy(open.name, bus->name, sizeof(open.name));
	return done("SLUICE_CTL_OPEN", ioctl(ctl(), SLUICE_CTL_OPEN, &open));
}

struct bus new_bus(unsigned int mode)
{
	static const unsigned int all = SLUICE_BUS_DROP | SLUICE_BUS_BLOCK | SLUICE_BUS_EVICT;
	const struct sluice_bus_params params = {
		.size = sizeof(params),
		.mode = mode,
		.policies = mode == SLUICE_BUS_UNICAST ? 0 : all,
	};
	static unsigned int number;
	struct bus bus = {};

	snprintf(bus.name, sizeof(bus.name), "bus_uring-%d-%u", getpid(), number++);
	bus.sender = open_end(&bus, SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE | SLUICE_OPEN_EXCL,
			      &params);
	return bus;
}

int subscribe(const struct bus *bus, unsigned int policy, unsigned int format)
{
	const struct sluice_bus_params params = {
		.size = sizeof(params),
		.policy = policy,
		.format = format,
	};

	return open_end(bus, SLUICE_OPEN_READ, &params);
}

int add_sender(const struct bus *bus, unsigned int format)
{
	const struct sluice_bus_params params = { .size = sizeof(params), .format = format };

	return open_end(bus, SLUICE_OPEN_WRITE, &params);
}

void destroy(const struct bus *bus)
{
	struct sluice_unlink unlink = {
		.size = sizeof(unlink),
		.kind = SLUICE_KIND_BUS,
		.scope_fd = SLUICE_SCOPE_SELF,
	};

	memcpy(unlink.name, bus->name, sizeof(unlink.name));
	done("SLUICE_CTL_DESTROY", ioctl(ctl(), SLUICE_CTL_DESTROY, &unlink));
}

struct sluice_bus_info state(int end)
{
	struct sluice_bus_info info = { .size = sizeof(info) };

	done("SLUICE_BUS_INFO", ioctl(end, SLUICE_BUS_INFO, &info));
	return info;
}

/* ---- messages, without io_uring ---- */

size_t make_content(struct content *content, __u32 sender, __u32 number)
{
	size_t rest = number * 37 % sizeof(content->rest), i;

	content->sender = sender;
	content->number = number;
	for (i = 0; i < rest; i++)
		content->rest[i] = number + i;
	return offsetof(struct content, rest) + rest;
}

void expect_content(const struct content *seen, long length, __u32 sender, __u32 number)
{
	struct content content;

	expect("length of a message", length, make_content(&content, sender, number));
	if (memcmp(seen, &content, length))
		fail("expected message %u of sender %u, saw %u of %u, or other bytes", number,
		     sender, seen->number, seen->sender);
}

void send_bytes(int sender, const void *bytes, size_t length)
{
	expect("bytes sent", done("write", write(sender, bytes, length)), length);
}

void send_content(int sender, __u32 name, __u32 number)
{
	struct content content;
	size_t length = make_content(&content, name, number);

	send_bytes(sender, &content, length);
}

long receive_now(int subscriber, void *bytes, size_t room)
{
	struct iovec vector = { bytes, room };
	ssize_t length = preadv2(subscriber, &vector, 1, -1, RWF_NOWAIT);

	return length < 0 ? -errno : length;
}

static long send_now(int sender, const void *bytes, size_t length)
{
	struct iovec vector = { (void *)bytes, length };
	ssize_t sent = pwritev2(sender, &vector, 1, -1, RWF_NOWAIT);

	return sent < 0 ? -errno : sent;
}

void expect_received(int subscriber, const char *text)
{
	char bytes[CAPACITY];

	expect("bytes received", receive_now(subscriber, bytes, sizeof(bytes)), strlen(text));
	if (memcmp(bytes, text, strlen(text)))
		fail("expected '%s', received other bytes", text);
}

void expect_nothing(int subscriber)
{
	char bytes[CAPACITY];

	expect("nothing to receive", receive_now(subscriber, bytes, sizeof(bytes)), -EAGAIN);
}

void fill(int sender)
{
	int sent;

	for (sent = 0; sent < HELD; sent++)
		expect("filling", send_now(sender, "f", 1), 1);
	expect("full", send_now(sender, "f", 1), -EAGAIN);
}

void drain(int subscriber)
{
	int received;

	for (received = 0; received < HELD; received++)
		expect_received(subscriber, "f");
}

/* ---- requests ---- */

void new_ring(struct io_uring *ring)
{
	int err = io_uring_queue_init(64, ring, setup->flags);

	if (err == -EINVAL)
		skip("this kernel does not have such rings");
	if (err == -EPERM || err == -ENOSYS)
		skip("io_uring is switched off here (kernel.io_uring_disabled)");
	expect("io_uring_queue_init", err, 0);
}

struct io_uring_sqe *request(struct io_uring *ring)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	if (!sqe)
		fail("the ring is full");
	return sqe;
}

void submit(struct io_uring *ring, int count)
{
	expect("requests submitted", io_uring_submit(ring), count);
}

void submit_read(struct io_uring *ring, int end, void *bytes, size_t room, __u64 name)
{
	struct io_uring_sqe *sqe = request(ring);

	io_uring_prep_read(sqe, end, bytes, room, -1);
	io_uring_sqe_set_data64(sqe, name);
	submit(ring, 1);
}

void submit_write(struct io_uring *ring, int end, const void *bytes, size_t length)
{
	struct io_uring_sqe *sqe = request(ring);

	io_uring_prep_write(sqe, end, bytes, length, -1);
	io_uring_sqe_set_data64(sqe, WRITE);
	submit(ring, 1);
}

void submit_poll(struct io_uring *ring, int end, unsigned int events, bool multishot)
{
	struct io_uring_sqe *sqe = request(ring);

	if (multishot)
		io_uring_prep_poll_multishot(sqe, end, events);
	else
		io_uring_prep_poll_add(sqe, end, events);
	io_uring_sqe_set_data64(sqe, POLL);
	submit(ring, 1);
}

void submit_cancel(struct io_uring *ring, __u64 name)
{
	struct io_uring_sqe *sqe = request(ring);

	io_uring_prep_cancel64(sqe, name, 0);
	io_uring_sqe_set_data64(sqe, CANCEL);
	submit(ring, 1);
}

struct completion completion(struct io_uring *ring)
{
	struct completion completion;
	struct io_uring_cqe *cqe;

	expect("io_uring_wait_cqe", io_uring_wait_cqe(ring, &cqe), 0);
	completion = (struct completion) { cqe->user_data, cqe->res, cqe->flags };
	io_uring_cqe_seen(ring, cqe);
	return completion;
}

int result(struct io_uring *ring, __u64 name)
{
	struct completion last = completion(ring);

	expect("which request completed", last.name, name);
	if (last.flags & IORING_CQE_F_MORE)
		fail("a request that should end with %d goes on", last.result);
	return last.result;
}

struct completion armed_completion(struct io_uring *ring, __u64 name)
{
	struct completion last = completion(ring);

	expect("which request completed", last.name, name);
	if (!(last.flags & IORING_CQE_F_MORE))
		fail("a multishot request ended with %d", last.result);
	return last;
}

void expect_pending(struct io_uring *ring)
{
	struct __kernel_timespec limit = { .tv_nsec = GRACE_MS * 1000000 };
	struct io_uring_cqe *cqe;
	int err = io_uring_wait_cqe_timeout(ring, &cqe, &limit);

	if (!err)
		fail("request %llu completed with %d instead of being pending",
		     (unsigned long long)cqe->user_data, cqe->res);
	expect("io_uring_wait_cqe_timeout", err, -ETIME);
}

int cancelled_result(struct io_uring *ring, __u64 name, int *cancellation)
{
	struct completion first = completion(ring), second = completion(ring);

	if (first.name == CANCEL) {
		struct completion other = first;

		first = second;
		second = other;
	}
	expect("the request", first.name, name);
	expect("its cancellation", second.name, CANCEL);
	*cancellation = second.result;
	return first.result;
}

void cancel(struct io_uring *ring, __u64 name)
{
	int cancellation, request;

	submit_cancel(ring, name);
	request = cancelled_result(ring, name, &cancellation);
	expect("the cancelled request", request, -ECANCELED);
	expect("the cancellation", cancellation, 0);
}
