// SPDX-License-Identifier: MIT OR Apache-2.0
/* Requests that are in flight at the end of their process, or of the bus. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"
#include "support.h"

/* A bus without messages and one that is full, and endpoints that a child inherits. */
struct in_flight {
	struct bus empty, full;
	int reader;		/* of the empty bus */
	int other;		/* of the full bus */
};

static struct in_flight open_in_flight(void)
{
	struct in_flight buses = {
		.empty = new_bus(SLUICE_BUS_BROADCAST),
		.full = new_bus(SLUICE_BUS_BROADCAST),
	};

	buses.reader = subscribe(&buses.empty, SLUICE_BUS_BLOCK, SLUICE_BUS_RAW);
	buses.other = subscribe(&buses.full, SLUICE_BUS_BLOCK, SLUICE_BUS_RAW);
	fill(buses.full.sender);
	return buses;
}

/* In a child: requests on inherited endpoints and on its own ones, which remain pending. */
static void leave_requests(const struct in_flight *buses)
{
	static char bytes[2][16];
	struct io_uring ring;

	new_ring(&ring);
	submit_read(&ring, buses->reader, bytes[0], sizeof(bytes[0]), READ);
	submit_read(&ring, subscribe(&buses->empty, SLUICE_BUS_BLOCK, SLUICE_BUS_RAW), bytes[1],
		    sizeof(bytes[1]), READ);
	submit_write(&ring, buses->full.sender, "never", 5);
	submit_write(&ring, add_sender(&buses->full, SLUICE_BUS_RAW), "never", 5);
	expect_pending(&ring);
}

/* After the requests have ended: nothing was received or sent, and the endpoints are closed. */
static void expect_no_effect(const struct in_flight *buses)
{
	send_bytes(buses->empty.sender, "mine", 4);
	expect_received(buses->reader, "mine");
	/* The kernel ends a ring in the background. */
	while (state(buses->empty.sender).subscribers > 1 || state(buses->other).senders > 1)
		usleep(1000);
	drain(buses->other);
	expect_nothing(buses->other);
	send_bytes(buses->full.sender, "mine", 4);
	expect_received(buses->other, "mine");
	usleep(GRACE_MS * 1000);
	expect("messages sent", state(buses->other).sent, HELD + 1);
}

void an_exit_ends_pending_requests(void)
{
	struct in_flight buses = open_in_flight();
	pid_t child = start();

	if (!child) {
		leave_requests(&buses);
		_exit(EXIT_SUCCESS);
	}
	expect_success("the child", child);
	expect_no_effect(&buses);
}

void a_killed_process_leaves_no_requests(void)
{
	struct in_flight buses = open_in_flight();
	pid_t child = start();
	int status;

	if (!child) {
		leave_requests(&buses);
		done("raise", raise(SIGKILL));
	}
	done("waitpid", waitpid(child, &status, 0));
	expect("the status of the child", status, SIGKILL);
	expect_no_effect(&buses);
}

/* The other program runs while its predecessor's requests are tested for their effects. */
void an_exec_ends_pending_requests(void)
{
	struct in_flight buses = open_in_flight();
	int before[2], input[2];
	pid_t child;
	char byte;

	done("pipe2", pipe2(before, O_CLOEXEC));
	done("pipe2", pipe2(input, O_CLOEXEC));
	child = start();
	if (!child) {
		leave_requests(&buses);
		done("dup2", dup2(input[0], STDIN_FILENO));
		execl("/bin/cat", "cat", NULL);
		fail("exec: %s", strerror(errno));
	}
	close(before[1]);
	expect("end of the pipe at exec", read(before[0], &byte, 1), 0);
	expect_no_effect(&buses);
	expect("the program still runs", waitpid(child, NULL, WNOHANG), 0);
	close(input[1]);
	expect_success("the program", child);
}

/* ---- the end of the bus ---- */

void a_destroyed_bus_ends_its_receivers_requests(void)
{
	struct bus bus = new_bus(SLUICE_BUS_BROADCAST);
	int subscriber = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_RAW);
	int polled = subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_RAW);
	struct io_uring ring, other;
	char bytes[16];

	new_ring(&ring);
	new_ring(&other);
	submit_read(&ring, subscriber, bytes, sizeof(bytes), READ);
	submit_poll(&other, polled, POLLIN, true);
	expect_pending(&ring);
	expect_pending(&other);
	destroy(&bus);
	expect("READ", result(&ring, READ), -EPIPE);
	expect("POLL_ADD", completion(&other).result & (POLLHUP | POLLERR), POLLHUP | POLLERR);
	submit_read(&ring, subscriber, bytes, sizeof(bytes), READ);
	expect("READ afterwards", result(&ring, READ), -EPIPE);
}

void a_destroyed_bus_ends_its_senders_requests(void)
{
	struct bus bus = new_bus(SLUICE_BUS_BROADCAST);
	struct io_uring ring, other;

	subscribe(&bus, SLUICE_BUS_BLOCK, SLUICE_BUS_RAW);
	new_ring(&ring);
	new_ring(&other);
	fill(bus.sender);
	submit_write(&ring, bus.sender, "never", 5);
	submit_poll(&other, bus.sender, POLLOUT, false);
	expect_pending(&ring);
	expect_pending(&other);
	destroy(&bus);
	expect("WRITE", result(&ring, WRITE), -EPIPE);
	expect("POLL_ADD", result(&other, POLL) & (POLLHUP | POLLERR), POLLHUP | POLLERR);
	submit_write(&ring, bus.sender, "never", 5);
	expect("WRITE afterwards", result(&ring, WRITE), -EPIPE);
}
