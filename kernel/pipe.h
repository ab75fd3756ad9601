/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A byte stream with the semantics of fifo(7), one for every cgroup that opens /dev/sluice/pipe.
 *
 * Life: the first open in a scope makes the pipe, every endpoint (open file, or open that still
 * waits for its other side) holds one reference, and the last release frees it with whatever it
 * still holds, as a FIFO does. The pipe holds its scope; the scope points back without holding. A
 * process that moves to another cgroup keeps its endpoint, because the pipe was found once, at
 * open.
 *
 * The ring: two byte counts that only grow, `head` written and `tail` read, over a power of two of
 * page slots:
 *
 *      slots   0          1          2          3          ...   n-1
 *         +----------+----------+----------+----------+---   ---+----------+
 *         |          |      ####|##########|###       |         |          |   # not yet read
 *         +----------+----------+----------+----------+---   ---+----------+
 *                           ^ tail            ^ head
 *
 * Byte p lives in slot (p / PAGE_SIZE) mod n at offset p mod PAGE_SIZE. Short writes are therefore
 * always packed, and a page, once allocated by the first write that reaches its slot, is used again
 * and again: the steady state allocates nothing.
 *
 * Who writes what:
 * - `head` and what lies from it to `tail` + capacity belong to the holder of write_mutex;
 * - `tail` and what lies from it to `head` belong to the holder of read_mutex.
 *
 * So a reader and a writer never wait for each other's copy, nor for each other's page faults.
 *
 * Barriers, in pairs:
 * - (A) The writer stores `head` with release after it filled the bytes; the reader loads it with
 *   acquire before it takes them.
 * - (B) The reader stores `tail` with release after it took the bytes; the writer loads it with
 *   acquire before it fills them again.
 * - (C) The last writer to leave stores `writers` = 0 with release after its last `head`; a reader
 *   loads it with acquire before it looks once more for bytes and, finding none, reports the end of
 *   the file.
 * - Sleeping and waking: see wait.h. Conditions read `head` and `tail` without a lock; a stale view
 *   only errs towards looking again, since whoever made it stale looks at the queue afterwards.
 */
#ifndef SLUICE_PIPE_H
#define SLUICE_PIPE_H

#include <linux/fs.h>

extern const struct file_operations sluice_pipe_fops;

int sluice_pipe_init(void);
void sluice_pipe_exit(void);

#endif
