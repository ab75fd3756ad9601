/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A byte stream with the semantics of fifo(7): one without a name for every cgroup that opens
 * /dev/sluice/pipe, and as many named ones as are made through /dev/sluice/ctl.
 *
 * Life: that of a channel (channel.h). An endpoint is an open file, or an open that still waits for
 * its other side. The last release frees the pipe with whatever it still holds, as a FIFO does. A
 * process that moves to another cgroup keeps its endpoint, because the pipe was found once, at
 * open.
 *
 * An endpoint is one open file. It carries what belongs to the opener alone: what it has learned of
 * spinning, and whether a hang-up is news to it. The bytes are in pipe_buffer.h, moving whole pages
 * to and from pipe(2) is in pipe_splice.c.
 */
#ifndef SLUICE_PIPE_H
#define SLUICE_PIPE_H

#include <linux/fs.h>

#include "channel.h"
#include "pipe_buffer.h"
#include "wait.h"

struct sluice_endpoint {
	struct sluice_pipe *pipe;
	struct sluice_spin spin;
	/*
	 * What writer_opens was when this end was opened without waiting and found no writer:
	 * until it moves, poll does not report a hang-up. Otherwise a number that it no longer is.
	 */
	unsigned int writer_opens_before;
};

extern const struct file_operations sluice_pipe_fops;
extern const struct sluice_channel_kind sluice_pipe_kind;

/* A new file of the channel that is asked for. Waits as open(2) does on a FIFO. */
struct file *sluice_pipe_open_channel(const struct sluice_channel_request *request);

static inline struct sluice_endpoint *sluice_pipe_endpoint(struct file *file)
{
	return file->private_data;
}

/* Answers a write when nobody reads. */
int sluice_pipe_epipe(bool signal);

ssize_t sluice_pipe_splice_read(struct file *in, loff_t *position, struct pipe_inode_info *out,
				size_t length, unsigned int flags);
ssize_t sluice_pipe_splice_write(struct pipe_inode_info *in, struct file *out, loff_t *position,
				 size_t length, unsigned int flags);

int sluice_pipe_init(void);
void sluice_pipe_exit(void);

#endif
