/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A byte stream with the semantics of fifo(7): one without a name for every cgroup that opens
 * /dev/sluice/pipe, and any number of named ones through /dev/sluice/ctl.
 *
 * Life: that of a channel (channel.h). An open that waits for its other side counts as an endpoint.
 * The last release frees the pipe with the bytes that it still holds, as a FIFO does.
 *
 * An endpoint holds what belongs to its file alone: what it has learned about spinning, and whether
 * poll has to report a hang-up. The bytes are in pipe_buffer.h, moving whole pages to and from
 * pipe(2) is in pipe_splice.c.
 */
#ifndef SLUICE_PIPE_H
#define SLUICE_PIPE_H

#include <linux/container_of.h>
#include <linux/fs.h>

#include "endpoint.h"
#include "pipe_buffer.h"
#include "wait.h"

struct sluice_pipe_endpoint {
	struct sluice_endpoint endpoint;
	struct sluice_pipe *pipe;
	struct sluice_spin spin;
	/*
	 * The value of writer_opens at an open that did not wait and found no writer: until it
	 * changes, poll does not report a hang-up. Otherwise a value that it no longer has.
	 */
	unsigned int writer_opens_before;
};

extern const struct sluice_kind sluice_pipe_kind;

static inline struct sluice_pipe_endpoint *sluice_pipe_endpoint_of(struct sluice_endpoint *endpoint)
{
	return container_of(endpoint, struct sluice_pipe_endpoint, endpoint);
}

static inline struct sluice_pipe_endpoint *sluice_pipe_endpoint(struct file *file)
{
	return sluice_pipe_endpoint_of(file->private_data);
}

/* For a write without readers. */
int sluice_pipe_epipe(bool signal);
/* Whether a write of at least @whole bytes should try to take room now. */
bool sluice_pipe_may_fill(struct sluice_pipe *pipe, size_t whole, bool nonblocking);

ssize_t sluice_pipe_splice_read(struct file *in, loff_t *position,
				struct pipe_inode_info *other_pipe, size_t length,
				unsigned int flags);
ssize_t sluice_pipe_splice_write(struct pipe_inode_info *other_pipe, struct file *out,
				 loff_t *position, size_t length, unsigned int flags);

#endif
