// SPDX-License-Identifier: GPL-2.0
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>

#include <uapi/linux/sluice.h>

#include "channel.h"
#include "endpoint.h"
#include "kind.h"
#include "stub.h"

#define DEFAULT_CAPACITY 4096

struct sluice_stub {
	struct sluice_channel channel;
	u64 capacity;
	u64 step;
	spinlock_t lock;		/* protects what follows */
	u64 count;
	u32 readers, writers, endpoints;
};

struct sluice_stub_endpoint {
	struct sluice_endpoint endpoint;
	u64 bytes_written;
};

static struct kmem_cache *stub_cache;

static struct sluice_stub *stub_of(const struct sluice_channel *channel)
{
	return container_of(channel, struct sluice_stub, channel);
}

static struct sluice_stub_endpoint *endpoint_of(struct file *file)
{
	return container_of((struct sluice_endpoint *)file->private_data,
			    struct sluice_stub_endpoint, endpoint);
}

static ssize_t stub_read(struct file *file, char __user *user, size_t length, loff_t *position)
{
	struct sluice_stub *stub = stub_of(endpoint_of(file)->endpoint.channel);
	u64 count;

	if (length < sizeof(count))
		return -EINVAL;
	spin_lock(&stub->lock);
	count = stub->count;
	spin_unlock(&stub->lock);
	return copy_to_user(user, &count, sizeof(count)) ? -EFAULT : sizeof(count);
}

static ssize_t stub_write(struct file *file, const char __user *user, size_t length,
			  loff_t *position)
{
	struct sluice_stub_endpoint *end = endpoint_of(file);
	struct sluice_stub *stub = stub_of(end->endpoint.channel);

	spin_lock(&stub->lock);
	stub->count += length * stub->step;
	end->bytes_written += length;
	spin_unlock(&stub->lock);
	return length;
}

static struct sluice_channel *stub_create(const struct sluice_channel_request *request)
{
	const struct sluice_stub_params *params = request->params;
	struct sluice_stub *stub;
	int err;

	stub = kmem_cache_zalloc(stub_cache, SLUICE_QUOTA_GFP);
	if (!stub)
		return ERR_PTR(-ENOMEM);
	stub->capacity = request->capacity ?: DEFAULT_CAPACITY;
	err = sluice_channel_init(&stub->channel, request, stub->capacity);
	if (err) {
		kmem_cache_free(stub_cache, stub);
		return ERR_PTR(err);
	}
	spin_lock_init(&stub->lock);
	stub->count = params ? params->initial : 0;
	stub->step = params && params->step ? params->step : 1;
	return &stub->channel;
}

static void stub_free(struct sluice_channel *channel)
{
	kmem_cache_free(stub_cache, stub_of(channel));
}

/* The count starts again. */
static void stub_destroy(struct sluice_channel *channel)
{
	struct sluice_stub *stub = stub_of(channel);

	spin_lock(&stub->lock);
	stub->count = 0;
	spin_unlock(&stub->lock);
}

/* By +1 or -1. */
static void count_endpoint(struct sluice_endpoint *endpoint, int change)
{
	struct sluice_stub *stub = stub_of(endpoint->channel);

	spin_lock(&stub->lock);
	stub->endpoints += change;
	if (endpoint->flags & SLUICE_OPEN_READ)
		stub->readers += change;
	if (endpoint->flags & SLUICE_OPEN_WRITE)
		stub->writers += change;
	spin_unlock(&stub->lock);
}

static int stub_attach(struct sluice_endpoint *endpoint, const void *params)
{
	count_endpoint(endpoint, 1);
	return 0;
}

static void stub_detach(struct sluice_endpoint *endpoint)
{
	count_endpoint(endpoint, -1);
}

static void stub_fill_info(struct sluice_channel *channel, struct sluice_channel_info *info)
{
	struct sluice_stub *stub = stub_of(channel);

	spin_lock(&stub->lock);
	info->readers = stub->readers;
	info->writers = stub->writers;
	info->capacity = stub->capacity;
	info->bytes = stub->count;
	spin_unlock(&stub->lock);
}

static void stub_fill_state(struct sluice_channel *channel, void *state)
{
	struct sluice_stub *stub = stub_of(channel);

	spin_lock(&stub->lock);
	*(struct sluice_stub_state *)state = (struct sluice_stub_state) {
		.endpoints = stub->endpoints,
		.count = stub->count,
		.step = stub->step,
	};
	spin_unlock(&stub->lock);
}

static const struct file_operations stub_fops = {
	.owner		= THIS_MODULE,
	.open		= sluice_endpoint_open,
	.release	= sluice_endpoint_release,
	.read		= stub_read,
	.write		= stub_write,
};

static int stub_init(void)
{
	stub_cache = kmem_cache_create("sluice_stub", sizeof(struct sluice_stub), 0, SLAB_ACCOUNT,
				       NULL);
	return stub_cache ? 0 : -ENOMEM;
}

static void stub_exit(void)
{
	kmem_cache_destroy(stub_cache);
}

const struct sluice_kind sluice_stub_kind = {
	.number		= SLUICE_KIND_STUB,
	.name		= "stub",
	.file_name	= "[sluice-stub]",
	.node_mode	= 0666,
	.fops		= &stub_fops,
	.init		= stub_init,
	.exit		= stub_exit,
	.create		= stub_create,
	.free		= stub_free,
	.destroy	= stub_destroy,
	.endpoint_size	= sizeof(struct sluice_stub_endpoint),
	.attach		= stub_attach,
	.detach		= stub_detach,
	.fill_info	= stub_fill_info,
	.params_size	= sizeof(struct sluice_stub_params),
	.params_size_ver0 = SLUICE_STUB_PARAMS_SIZE_VER0,
	.state_size	= sizeof(struct sluice_stub_state),
	.state_size_ver0 = SLUICE_STUB_STATE_SIZE_VER0,
	.fill_state	= stub_fill_state,
};
