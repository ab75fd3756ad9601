// SPDX-License-Identifier: GPL-2.0
#include <linux/container_of.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "kind.h"
#include "map.h"
#include "map_mapped.h"
#include "quota.h"
#include "stream.h"
#include "user_struct.h"

/* Steps of a batch between two chances for another thread to run. */
#define RESCHEDULE_STEPS 8

/*
 * Kernels clear variables on the stack, which takes longer for some of these than the operation.
 * They are __uninitialized where each byte is written before it is read.
 */

static struct sluice_map_endpoint *map_endpoint(const struct file *file)
{
	return file->private_data;
}

/* ---- operations ---- */

static int map_execute_get(struct sluice_map *map, struct sluice_map_op *op)
{
	struct sluice_map_key key;
	struct sluice_map_key_copy copy __uninitialized;
	int ret = sluice_map_copy_key(map, op->key, op->key_length, &copy, &key, SLUICE_QUOTA_GFP);

	if (ret)
		return ret;
	ret = sluice_map_get(map, &key, op);
	sluice_map_free_key(&copy);
	return ret;
}

static int map_execute_change(struct sluice_map_endpoint *end, u32 command,
			      struct sluice_map_op *op)
{
	struct sluice_map *map = end->map;
	struct sluice_map_change change = {
		.command = command,
		.flags = op->flags,
		.required = op->version,
		.user = u64_to_user_ptr(op->value),
		.length = op->value_length,
		.gfp = SLUICE_QUOTA_GFP,
		.ttl_ns = op->ttl_ns,
	};
	struct sluice_map_key_copy copy __uninitialized;
	int ret = sluice_map_copy_key(map, op->key, op->key_length, &copy, &change.key, change.gfp);

	if (ret)
		return ret;
	ret = sluice_map_change(map, &change);
	sluice_map_free_key(&copy);
	if (ret >= 0 || ret == -ESTALE || ret == -EEXIST)
		op->version = change.version;
	if (map->stream && ret >= 0)
		sluice_map_note_change(end, change.version);
	return ret;
}

/* Whether the endpoint permits the operation, and its fields do. 0, -EBADF, -EINVAL. */
static int map_check(const struct file *file, u32 command, const struct sluice_map_op *op)
{
	u32 flags = command == SLUICE_MAP_STEP_GET ? 0 : SLUICE_MAP_IF_VERSION | SLUICE_MAP_NOWAIT;

	if (command > SLUICE_MAP_STEP_DELETE || op->flags & ~flags)
		return -EINVAL;
	if (command == SLUICE_MAP_STEP_GET)
		return file->f_mode & FMODE_READ ? 0 : -EBADF;
	if (!(file->f_mode & FMODE_WRITE))
		return -EBADF;
	/* What a call does not use must be zero, so that it can have a meaning later. */
	if (!(op->flags & SLUICE_MAP_IF_VERSION) && op->version)
		return -EINVAL;
	if (command == SLUICE_MAP_STEP_DELETE && (op->value || op->value_length || op->ttl_ns))
		return -EINVAL;
	return 0;
}

/*
 * The result of the operation; fills in the fields of @op that are out. Does not wait until a
 * change is stored.
 */
static int execute(struct file *file, u32 command, struct sluice_map_op *op)
{
	struct sluice_map_endpoint *end = map_endpoint(file);
	int ret = map_check(file, command, op);

	if (ret)
		return ret;
	if (READ_ONCE(end->map->destroyed))
		return -EPIPE;
	return command == SLUICE_MAP_STEP_GET ? map_execute_get(end->map, op) :
						map_execute_change(end, command, op);
}

/* The number that the caller of a change waits for, or 0: its result needs no wait. */
static u64 awaited(u32 command, int result, const struct sluice_map_op *op)
{
	if (command == SLUICE_MAP_STEP_GET || result < 0 || op->flags & SLUICE_MAP_NOWAIT)
		return 0;
	return op->version;
}

/* Whether a result comes with fields of the operation that are out. */
static bool has_output(int result)
{
	return result >= 0 || result == -EMSGSIZE || result == -ESTALE || result == -EEXIST ||
	       result == -ETIMEDOUT || result == -EINTR;
}

static long execute_one(struct file *file, u32 command, struct sluice_map_op __user *user)
{
	struct sluice_map_endpoint *end = map_endpoint(file);
	struct sluice_map_op op __uninitialized;
	long ret;
	int err;

	ret = sluice_user_struct_read(&op, sizeof(op), SLUICE_MAP_OP_SIZE_VER0, user);
	if (ret)
		return ret;
	/* A change whose result cannot be written is not made. */
	if (command != SLUICE_MAP_STEP_GET && put_user(op.size, &user->size))
		return -EFAULT;
	ret = execute(file, command, &op);
	if (end->map->stream && awaited(command, ret, &op))
		ret = sluice_map_wait_stored(end, op.version) ?: ret;
	if (!has_output(ret))
		return ret;
	err = sluice_user_struct_write(user, &op, sizeof(op), op.size);
	return err ?: ret;
}

/* ---- batches ---- */

/* What a step requests. */
struct step_request {
	u32 command;
	u32 reserved;
	struct sluice_map_op op;	/* without its size */
};

/* 0, -EFAULT, -E2BIG. A step whose result cannot be written is not read either. */
static int read_step(struct step_request *request, struct sluice_map_step __user *user, u32 size)
{
	struct sluice_map_op *op = &request->op;
	int err = size > sizeof(*user) ? check_zeroed_user(user + 1, size - sizeof(*user)) : 1;
	s32 result;

	if (err <= 0)
		return err ?: -E2BIG;
	if (should_fail_usercopy() || !user_access_begin(user, sizeof(*user)))
		return -EFAULT;
	unsafe_get_user(request->command, &user->command, fault);
	unsafe_get_user(request->reserved, &user->reserved, fault);
	unsafe_get_user(op->flags, &user->flags, fault);
	unsafe_get_user(op->key, &user->key, fault);
	unsafe_get_user(op->value, &user->value, fault);
	unsafe_get_user(op->key_length, &user->key_length, fault);
	unsafe_get_user(op->value_length, &user->value_length, fault);
	unsafe_get_user(op->version, &user->version, fault);
	unsafe_get_user(op->ttl_ns, &user->ttl_ns, fault);
	unsafe_get_user(result, &user->result, fault);
	unsafe_put_user(result, &user->result, fault);
	user_access_end();
	return 0;
fault:
	user_access_end();
	return -EFAULT;
}

/* 0 or -EFAULT. */
static int write_step(struct sluice_map_step __user *user, int result,
		      const struct sluice_map_op *op)
{
	bool writes_all = has_output(result);

	if (should_fail_usercopy() || !user_write_access_begin(user, sizeof(*user)))
		return -EFAULT;
	if (writes_all) {
		unsafe_put_user(op->value_length, &user->value_length, fault);
		unsafe_put_user(op->version, &user->version, fault);
		unsafe_put_user(op->ttl_ns, &user->ttl_ns, fault);
	}
	unsafe_put_user(result, &user->result, fault);
	user_write_access_end();
	return 0;
fault:
	user_write_access_end();
	return -EFAULT;
}

/* Whether the step has waited in vain: the next ones would, too. */
static bool ends_batch(const struct sluice_map *map, int result, const struct sluice_map_op *op)
{
	return map->stream && result == -EAGAIN && !(op->flags & SLUICE_MAP_NOWAIT);
}

/*
 * 0, 1: it is the last one; -EFAULT; -E2BIG, -ERESTARTSYS: not executed. @last: becomes the number
 * that the caller waits for.
 */
static int execute_step(struct file *file, struct sluice_map_step __user *user, u32 size, u64 *last)
{
	struct step_request request __uninitialized;
	int err = read_step(&request, user, size);
	int result;

	if (err)
		return err;
	result = request.reserved ? -EINVAL : execute(file, request.command, &request.op);
	if (result == -ERESTARTSYS)
		return result;
	*last = max(*last, awaited(request.command, result, &request.op));
	err = write_step(user, result, &request.op);
	return err ?: ends_batch(map_endpoint(file)->map, result, &request.op);
}

/* Those executed; or, if there are none, the error of the first. @last: as of execute_step(). */
static int map_execute_steps(struct file *file, const struct sluice_map_batch *batch, u64 *last)
{
	u32 count = min_t(u32, batch->count, SLUICE_MAP_BATCH_MAX), done;
	u8 __user *user = u64_to_user_ptr(batch->steps);

	for (done = 0; done < count; done++, user += batch->step_size) {
		int err = signal_pending(current) ? -EINTR :
			  execute_step(file, (void __user *)user, batch->step_size, last);

		if (err)
			return done + (err > 0) ?: err;
		if (done % RESCHEDULE_STEPS == RESCHEDULE_STEPS - 1)
			cond_resched();
	}
	return done;
}

static long execute_batch(struct file *file, struct sluice_map_batch __user *user)
{
	struct sluice_map_endpoint *end = map_endpoint(file);
	struct sluice_map_batch batch;
	u64 last = 0;
	int ret, err;

	ret = sluice_user_struct_read(&batch, sizeof(batch), SLUICE_MAP_BATCH_SIZE_VER0, user);
	if (ret)
		return ret;
	if (batch.reserved ||
	    !sluice_user_is_entry_size(batch.step_size, SLUICE_MAP_STEP_SIZE_VER0))
		return -EINVAL;
	if (READ_ONCE(end->map->destroyed))
		return -EPIPE;
	ret = map_execute_steps(file, &batch, &last);
	if (ret < 0)
		return ret;
	err = last ? sluice_map_wait_stored(end, last) : 0;
	return put_user(ret, &user->count) ?: err;
}

/* ---- state ---- */

static void map_fill_state(struct sluice_channel *channel, void *state)
{
	struct sluice_map *map = sluice_map_of(channel);
	struct sluice_map_info *info = state;

	*info = (struct sluice_map_info) {
		.capacity = map->capacity,
		.bytes = atomic64_read(&map->bytes),
		.entries_max = map->entries_max,
		.entries = atomic64_read(&map->entries),
		.sequence = atomic64_read(&map->sequence),
		.expired = atomic64_read(&map->expired),
		.missed = atomic64_read(&map->missed),
		.events = map->slot_count,
		.watchers = atomic_read(&map->watchers),
		.table = sluice_map_mapped_table(map),
		.cell = sluice_map_mapped_cell(map),
	};
	if (map->stream)
		sluice_stream_fill_info(map->stream, info);
	if (map->mapped)
		info->flags |= SLUICE_MAP_MAPPED;
}

static void map_fill_info(struct sluice_channel *channel, struct sluice_channel_info *info)
{
	struct sluice_map *map = sluice_map_of(channel);

	info->readers = atomic_read(&map->readers);
	info->writers = atomic_read(&map->writers);
	info->capacity = map->capacity;
	info->bytes = atomic64_read(&map->bytes);
	info->messages = atomic64_read(&map->sequence);
	info->lost = atomic64_read(&map->missed);
	info->waiting = sluice_wait_count(&map->changed);
	if (map->stream) {
		info->lag = info->messages - min(info->messages, READ_ONCE(map->stream->stored));
		info->waiting += sluice_wait_is_used(&map->stream->changed);
	}
}

static long map_get_info(struct sluice_map_endpoint *end, struct sluice_map_info __user *user)
{
	struct sluice_map_info info;
	u32 user_size;
	int err = sluice_user_struct_size(user, SLUICE_MAP_INFO_SIZE_VER0, &user_size);

	if (err)
		return err;
	map_fill_state(&end->map->channel, &info);
	info.watched = atomic64_read(&end->watched);
	return sluice_user_struct_write(user, &info, sizeof(info), user_size);
}

/* ---- calls on an endpoint ---- */

static long map_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct sluice_map_endpoint *end = map_endpoint(file);
	void __user *user = (void __user *)argument;

	if (_IOC_TYPE(command) != SLUICE_IOCTL_TYPE)
		return -ENOTTY;

	/* Only by number: the size, which is part of the command, may grow. */
	switch (_IOC_NR(command)) {
	case _IOC_NR(SLUICE_MAP_GET):
		return execute_one(file, SLUICE_MAP_STEP_GET, user);
	case _IOC_NR(SLUICE_MAP_SET):
		return execute_one(file, SLUICE_MAP_STEP_SET, user);
	case _IOC_NR(SLUICE_MAP_DELETE):
		return execute_one(file, SLUICE_MAP_STEP_DELETE, user);
	case _IOC_NR(SLUICE_MAP_BATCH):
		return execute_batch(file, user);
	case _IOC_NR(SLUICE_MAP_INFO):
		return map_get_info(end, user);
	case _IOC_NR(SLUICE_MAP_SYNC):
		return sluice_map_sync(end->map, user);
	case _IOC_NR(SLUICE_MAP_DUMP):
	case _IOC_NR(SLUICE_MAP_WATCH):
		break;
	default:
		return sluice_endpoint_ioctl(file, command, user);
	}
	if (!(file->f_mode & FMODE_READ))
		return -EBADF;
	if (READ_ONCE(end->map->destroyed))
		return -EPIPE;
	if (_IOC_NR(command) == _IOC_NR(SLUICE_MAP_DUMP))
		return sluice_map_dump(end->map, user);
	return sluice_map_watch(end, user);
}

static __poll_t map_poll(struct file *file, poll_table *table)
{
	struct sluice_map_endpoint *end = map_endpoint(file);
	struct sluice_stream *stream = end->map->stream;
	__poll_t events = 0;

	/* The barrier of sluice_wait_poll() is for both. */
	if (stream && file->f_mode & FMODE_WRITE)
		poll_wait(file, &stream->changed, table);
	sluice_wait_poll(file, &end->map->changed, table);
	if (READ_ONCE(end->map->destroyed))
		return EPOLLHUP | EPOLLERR;
	if (file->f_mode & FMODE_WRITE)
		events |= stream ? sluice_stream_poll(stream, atomic64_read(&end->changed)) :
				   EPOLLOUT | EPOLLWRNORM;
	if (sluice_map_watches(end) && sluice_map_has_event(end))
		events |= EPOLLIN | EPOLLRDNORM;
	return events;
}

static int map_mmap(struct file *file, struct vm_area_struct *vma)
{
	const struct sluice_map *map = map_endpoint(file)->map;

	return READ_ONCE(map->destroyed) ? -EPIPE : sluice_map_mapped_mmap(map, vma);
}

/* ---- endpoints ---- */

static const struct sluice_map_params no_params;

/* A map cannot become durable, nor get a table. */
static int map_may_attach(const struct sluice_channel *channel, const void *params)
{
	const struct sluice_map_params *required = params ?: &no_params;
	const struct sluice_map *map = container_of_const(channel, struct sluice_map, channel);

	if ((required->flags & SLUICE_MAP_DURABLE && !map->stream) ||
	    (required->flags & SLUICE_MAP_MAPPED && !map->mapped))
		return -EEXIST;
	return 0;
}

static void map_count(struct sluice_map_endpoint *end, int number)
{
	if (end->endpoint.flags & SLUICE_OPEN_READ)
		atomic_add(number, &end->map->readers);
	if (end->endpoint.flags & SLUICE_OPEN_WRITE)
		atomic_add(number, &end->map->writers);
}

static int map_attach(struct sluice_endpoint *endpoint, const void *params)
{
	struct sluice_map_endpoint *end =
		container_of(endpoint, struct sluice_map_endpoint, endpoint);

	end->map = sluice_map_of(endpoint->channel);
	if (READ_ONCE(end->map->destroyed))
		return -EPIPE;
	sluice_spin_init(&end->spin);
	map_count(end, 1);
	return 0;
}

static void map_detach(struct sluice_endpoint *endpoint)
{
	struct sluice_map_endpoint *end =
		container_of(endpoint, struct sluice_map_endpoint, endpoint);

	if (end->watches)
		atomic_dec(&end->map->watchers);
	map_count(end, -1);
}

/* ---- lifetime of the channel ---- */

/*
 * The keeper may still hold a reference, and the next attempt is charged again. A map with restored
 * entries stays charged until they are freed. The worker is stopped first: it clears cells of the
 * table when entries expire.
 */
static void map_give_back(struct sluice_map *map)
{
	sluice_map_expiry_exit(map);
	sluice_map_mapped_free(map);
	if (!map->restored)
		sluice_quota_uncommit(map->channel.charge);
}

/*
 * Asks the keeper for the map, if it is durable. -ESTALE: if @params have changed, the stored map
 * has another table: begin again with them; otherwise look the name up again.
 */
static struct sluice_map *map_create_once(const struct sluice_channel_request *request,
					  struct sluice_map_params *params)
{
	struct sluice_map *map = sluice_map_alloc(request, params);
	int err;

	if (IS_ERR(map))
		return map;
	if (!map->stream) {
		atomic64_set(&map->sequence, SLUICE_MAP_BEFORE_FIRST);
		atomic64_set(&map->trimmed, SLUICE_MAP_BEFORE_FIRST);
		return map;
	}
	err = sluice_stream_ask(map->stream, request);
	if (!err)
		return map;
	if (err == -ESTALE)
		sluice_stream_get_table(map->stream, params);
	if (sluice_stream_state(map->stream) == SLUICE_STREAM_DROPPED)
		map_give_back(map);
	sluice_channel_put(&map->channel);
	return ERR_PTR(err);
}

/*
 * The opener allocates the table, also of a map that the keeper restores, because that would delay
 * the keeper. The size of a stored table is known only after the keeper was asked.
 */
static struct sluice_channel *map_create(const struct sluice_channel_request *request)
{
	const struct sluice_map_params *required = request->params ?: &no_params;
	struct sluice_map_params params = *required, before;
	struct sluice_map *map;

	do {
		before = params;
		map = map_create_once(request, &params);
		if (required->flags & ~params.flags & SLUICE_MAP_MAPPED)
			return ERR_PTR(-EEXIST);
	} while (map == ERR_PTR(-ESTALE) && memcmp(&before, &params, sizeof(params)));
	return IS_ERR(map) ? ERR_CAST(map) : &map->channel;
}

static void map_destroy(struct sluice_channel *channel)
{
	struct sluice_map *map = sluice_map_of(channel);

	WRITE_ONCE(map->destroyed, true);
	sluice_map_mapped_destroy(map);
	sluice_wait_wake_all(&map->changed, 0);
}

static int map_begin_unlink(struct sluice_channel *channel)
{
	struct sluice_map *map = sluice_map_of(channel);

	return map->stream ? sluice_stream_unlink(map->stream) : 0;
}

static void map_unnamed(struct sluice_channel *channel)
{
	struct sluice_map *map = sluice_map_of(channel);

	if (map->stream)
		sluice_stream_unnamed(map->stream);
}

/* The callbacks of the last maps are in this module. */
static void map_exit(void)
{
	rcu_barrier();
	sluice_map_expiry_stop();
}

static const struct file_operations map_fops = {
	.owner		= THIS_MODULE,
	.release	= sluice_endpoint_release,
	.show_fdinfo	= sluice_endpoint_show_fdinfo,
	.read_iter	= sluice_map_read_iter,
	.poll		= map_poll,
	.mmap		= map_mmap,
	.unlocked_ioctl	= map_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
};

const struct sluice_kind sluice_map_kind = {
	.number		= SLUICE_KIND_MAP,
	.name		= "map",
	.file_name	= "[sluice-map]",
	.fops		= &map_fops,
	.init		= sluice_map_expiry_start,
	.exit		= map_exit,
	.create		= map_create,
	.free		= sluice_map_free,
	.destroy	= map_destroy,
	.begin_unlink	= map_begin_unlink,
	.unnamed	= map_unnamed,
	.open_keeper	= sluice_keeper_open,
	.may_attach	= map_may_attach,
	.endpoint_size	= sizeof(struct sluice_map_endpoint),
	.attach		= map_attach,
	.detach		= map_detach,
	.fill_info	= map_fill_info,
	.params_size	= sizeof(struct sluice_map_params),
	.params_size_ver0 = SLUICE_MAP_PARAMS_SIZE_VER0,
	.state_size	= sizeof(struct sluice_map_info),
	.state_size_ver0 = SLUICE_MAP_INFO_SIZE_VER0,
	.fill_state	= map_fill_state,
};
