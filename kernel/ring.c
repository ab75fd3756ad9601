// SPDX-License-Identifier: GPL-2.0
#include <linux/atomic.h>
#include <linux/container_of.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/nodemask.h>
#include <linux/numa.h>
#include <linux/poll.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include <uapi/linux/sluice.h>

#include "channel.h"
#include "endpoint.h"
#include "kind.h"
#include "ring.h"
#include "ring_memory.h"
#include "ring_wait.h"
#include "trace.h"
#include "user_struct.h"
#include "wait.h"

/* Beyond the private caches of both processors (decision 31). */
#define DEFAULT_CAPACITY SZ_4M
#define SESSIONS_MAX 2		/* the current one, and one that has ended */
#define WAKE_EVENTS (EPOLLIN | EPOLLRDNORM)

static struct sluice_ring *ring_of(const struct sluice_channel *channel)
{
	return container_of(channel, struct sluice_ring, channel);
}

static struct sluice_ring_endpoint *ring_endpoint_of(struct sluice_endpoint *endpoint)
{
	return container_of(endpoint, struct sluice_ring_endpoint, endpoint);
}

static struct sluice_ring_endpoint *ring_endpoint(struct file *file)
{
	return ring_endpoint_of(file->private_data);
}

/* The number of the role in the ABI. */
static u32 abi_role(enum sluice_ring_role role)
{
	return role == SLUICE_RING_SIDE_PRODUCER ? SLUICE_RING_PRODUCER : SLUICE_RING_CONSUMER;
}

static enum sluice_ring_role peer_of(enum sluice_ring_role role)
{
	return role == SLUICE_RING_SIDE_PRODUCER ? SLUICE_RING_SIDE_CONSUMER :
						   SLUICE_RING_SIDE_PRODUCER;
}

/* ---- the state of a role ---- */

/* If it has ended, the reason in its control page is visible afterwards. */
static u32 state_of(const struct sluice_ring_session *session, enum sluice_ring_role role)
{
	return smp_load_acquire(&session->sides[role].state);	/* (ring-E) */
}

static bool has_ended(u32 state)
{
	return state >= SLUICE_RING_ROLE_CLOSED;
}

/* Whether its endpoint may still use the role: false after DETACH and after DESTROY. */
static bool is_attached(const struct sluice_ring_endpoint *end)
{
	return READ_ONCE(end->attached) &&
	       state_of(end->session, end->role) != SLUICE_RING_ROLE_DESTROYED;
}

/*
 * Under the ring's lock: ends the role for this reason (SLUICE_RING_CLOSED and so on), unless its
 * process has stored a reason itself, which the peer may have seen. Not by compare-and-exchange: on
 * processors that repeat it in a loop, the process could prolong that for ever by its own stores. A
 * reason that the process stores between the two accesses is overwritten.
 */
static void set_ended(const struct sluice_ring *ring, struct sluice_ring_session *session,
		      enum sluice_ring_role role, u32 reason)
{
	struct sluice_ring_ctrl *ctrl = sluice_ring_memory_ctrl(session->memory, role);
	u32 stored = READ_ONCE(ctrl->closed);

	if (!stored)
		smp_store_release(&ctrl->closed, reason);	/* for the peer */
	else if (reason == SLUICE_RING_DIED)
		reason = SLUICE_RING_CLOSED;
	trace_sluice_ring_end(&ring->channel, abi_role(role), reason);
	/* (ring-E): pairs with state_of(). The states of ended roles follow the reasons by one. */
	smp_store_release(&session->sides[role].state, reason + 1);
}

/* Under the ring's lock: its endpoint has mapped nothing. */
static void give_back(const struct sluice_ring *ring, struct sluice_ring_session *session,
		      enum sluice_ring_role role)
{
	trace_sluice_ring_end(&ring->channel, abi_role(role), 0);
	WRITE_ONCE(session->sides[role].state, SLUICE_RING_ROLE_VACANT);
}

/* ---- sessions ---- */

/* -ENOMEM, -EINTR. */
static struct sluice_ring_session *ring_session_create(const struct sluice_ring *ring)
{
	struct sluice_ring_session *session;
	int err;

	session = sluice_channel_kvcalloc(&ring->channel, 1, sizeof(*session), SLUICE_QUOTA_GFP);
	if (!session)
		return ERR_PTR(-ENOMEM);
	session->memory = sluice_ring_memory_create(&ring->channel, ring->capacity, ring->node,
						    SLUICE_QUOTA_GFP);
	if (IS_ERR(session->memory)) {
		err = PTR_ERR(session->memory);
		kvfree(session);
		return ERR_PTR(err);
	}
	refcount_set(&session->refs, 1);
	sluice_wait_queue_init(&session->sides[SLUICE_RING_SIDE_PRODUCER].wait);
	sluice_wait_queue_init(&session->sides[SLUICE_RING_SIDE_CONSUMER].wait);
	return session;
}

static struct sluice_ring_session *session_get(struct sluice_ring_session *session)
{
	refcount_inc(&session->refs);
	return session;
}

/* Under the ring's lock: counts the memory of so many sessions, at least that of one. */
static int count_sessions(struct sluice_ring *ring, unsigned int count)
{
	return sluice_quota_change_as_prepared(ring->channel.charge,
					       ring->capacity * max(count, 1u));
}

static void session_put(struct sluice_ring_session *session)
{
	struct sluice_ring *ring;

	if (!session || !refcount_dec_and_test(&session->refs))
		return;
	sluice_ring_memory_free(session->memory);
	ring = session->ring;
	if (ring) {
		spin_lock(&ring->lock);
		count_sessions(ring, --ring->session_count);
		spin_unlock(&ring->lock);
	}
	kvfree(session);
}

static u64 position(const struct sluice_ring_session *session, enum sluice_ring_role role)
{
	return READ_ONCE(sluice_ring_memory_ctrl(session->memory, role)->pos);
}

/*
 * Whether the producer has published anything: a producer that was killed has published its first
 * record, but perhaps not stored its position.
 */
static bool has_records(const struct sluice_ring_session *session)
{
	const struct sluice_ring_header *first = sluice_ring_memory_data(session->memory, 0);

	return position(session, SLUICE_RING_SIDE_PRODUCER) || READ_ONCE(first->state);
}

/* Under the ring's lock, after a role has ended or was given back. */
static bool is_over(const struct sluice_ring_session *session)
{
	u32 producer = session->sides[SLUICE_RING_SIDE_PRODUCER].state;
	u32 consumer = session->sides[SLUICE_RING_SIDE_CONSUMER].state;

	if (producer == SLUICE_RING_ROLE_TAKEN || consumer == SLUICE_RING_ROLE_TAKEN)
		return false;
	return !has_ended(producer) || has_ended(consumer) || !has_records(session);
}

/* Under the ring's lock: removes the current session. The caller puts it after unlocking. */
static struct sluice_ring_session *remove_session(struct sluice_ring *ring)
{
	struct sluice_ring_session *session = ring->session;

	ring->session = NULL;
	return session;
}

/* ---- a role of an endpoint ---- */

/* Under the ring's lock: the current session, or @new if there is none, or an error. */
static struct sluice_ring_session *current_session(struct sluice_ring *ring,
						   struct sluice_ring_session *new)
{
	int err;

	if (ring->destroyed)
		return ERR_PTR(-EPIPE);
	if (ring->session)
		return ring->session;
	if (ring->session_count == SESSIONS_MAX)
		return ERR_PTR(-EBUSY);
	if (!new)
		return ERR_PTR(-ENODATA);
	err = count_sessions(ring, ring->session_count + 1);
	if (err)
		return ERR_PTR(err);
	new->ring = ring;
	ring->session = session_get(new);
	ring->session_count++;
	return new;
}

/*
 * Takes the endpoint's role in the current session, or in @new if there is none. -ENODATA: neither
 * exists. -EBUSY: the role is not vacant, or too many ended sessions have endpoints. -EPIPE: the
 * channel was destroyed after it was found. -ENOSPC, -EDQUOT: a limit does not permit the memory of
 * another session beside one that has ended.
 */
static int take_role(struct sluice_ring *ring, struct sluice_ring_endpoint *end,
		     struct sluice_ring_session *new)
{
	struct sluice_ring_session *session;
	int err;

	spin_lock(&ring->lock);
	session = current_session(ring, new);
	err = PTR_ERR_OR_ZERO(session);
	if (!err && session->sides[end->role].state != SLUICE_RING_ROLE_VACANT)
		err = -EBUSY;
	if (!err) {
		WRITE_ONCE(session->sides[end->role].state, SLUICE_RING_ROLE_TAKEN);
		end->session = session_get(session);
		end->attached = true;
	}
	spin_unlock(&ring->lock);
	if (!err)
		trace_sluice_ring_attach(&ring->channel, abi_role(end->role));
	return err;
}

/* After the end of a role: other threads may wait at its own endpoint, too. */
static void wake_both(struct sluice_ring_session *session)
{
	sluice_wait_wake_all(&session->sides[SLUICE_RING_SIDE_PRODUCER].wait, 0);
	sluice_wait_wake_all(&session->sides[SLUICE_RING_SIDE_CONSUMER].wait, 0);
}

/* Ends the endpoint's role for this reason. 0, or -EPIPE: it has ended already. */
static int end_role(struct sluice_ring *ring, struct sluice_ring_endpoint *end, u32 reason)
{
	struct sluice_ring_session *session = end->session, *over = NULL;

	spin_lock(&ring->lock);
	if (!is_attached(end)) {
		spin_unlock(&ring->lock);
		return -EPIPE;
	}
	WRITE_ONCE(end->attached, false);
	if (end->mapped)
		set_ended(ring, session, end->role, reason);
	else
		give_back(ring, session, end->role);
	if (is_over(session))
		over = remove_session(ring);
	spin_unlock(&ring->lock);
	wake_both(session);
	session_put(over);
	return 0;
}

/* Under begin_mutex. */
static int begin_session(struct sluice_ring *ring, struct sluice_ring_endpoint *end)
{
	struct sluice_ring_session *new = ring_session_create(ring);
	int err;

	if (IS_ERR(new))
		return PTR_ERR(new);
	err = take_role(ring, end, new);
	session_put(new);
	return err;
}

static int ring_attach(struct sluice_endpoint *endpoint, const void *params)
{
	struct sluice_ring_endpoint *end = ring_endpoint_of(endpoint);
	struct sluice_ring *ring = ring_of(endpoint->channel);
	int err;

	end->role = endpoint->flags & SLUICE_OPEN_WRITE ? SLUICE_RING_SIDE_PRODUCER :
							  SLUICE_RING_SIDE_CONSUMER;
	err = take_role(ring, end, NULL);
	if (err != -ENODATA)
		return err;
	err = sluice_wait_for_mutex(&ring->begin_mutex);
	if (err)
		return err;
	err = take_role(ring, end, NULL);
	if (err == -ENODATA)
		err = begin_session(ring, end);
	mutex_unlock(&ring->begin_mutex);
	return err;
}

/* After the last reference to the file, which mappings hold, too. */
static void ring_detach(struct sluice_endpoint *endpoint)
{
	struct sluice_ring_endpoint *end = ring_endpoint_of(endpoint);

	end_role(ring_of(endpoint->channel), end, SLUICE_RING_DIED);
	session_put(end->session);
}

static void ring_destroy(struct sluice_channel *channel)
{
	struct sluice_ring *ring = ring_of(channel);
	struct sluice_ring_session *session;
	enum sluice_ring_role role;

	spin_lock(&ring->lock);
	ring->destroyed = true;
	session = remove_session(ring);
	for (role = 0; session && role < ARRAY_SIZE(session->sides); role++)
		if (!has_ended(session->sides[role].state))
			set_ended(ring, session, role, SLUICE_RING_DESTROYED);
	spin_unlock(&ring->lock);
	if (session)
		wake_both(session);
	session_put(session);
}

/* ---- sleep and wake-up ---- */

static u32 peer_wake_seq(const struct sluice_ring_endpoint *end)
{
	return READ_ONCE(sluice_ring_memory_ctrl(end->session->memory,
						 peer_of(end->role))->wake_seq);
}

static bool peer_has_ended(const struct sluice_ring_endpoint *end)
{
	return has_ended(state_of(end->session, peer_of(end->role)));
}

static bool ring_ends_wait(const void *side, u32 seq)
{
	const struct sluice_ring_endpoint *end = side;

	return peer_wake_seq(end) != seq || peer_has_ended(end) || !is_attached(end);
}

static long ring_wait(struct sluice_ring_endpoint *end, struct sluice_ring_wait __user *user)
{
	wait_queue_head_t *queue = &end->session->sides[end->role].wait.head;
	long ret = sluice_ring_wait(queue, ring_ends_wait, end, user);

	return is_attached(end) ? ret : -EPIPE;
}

static long ring_wake(struct sluice_ring_endpoint *end)
{
	if (!is_attached(end))
		return -EPIPE;
	sluice_wait_wake_all(&end->session->sides[peer_of(end->role)].wait, WAKE_EVENTS);
	return 0;
}

static __poll_t ring_poll(struct file *file, poll_table *table)
{
	struct sluice_ring_endpoint *end = ring_endpoint(file);
	const struct sluice_ring_ctrl *own;

	sluice_wait_poll(file, &end->session->sides[end->role].wait, table);
	if (!is_attached(end))
		return WAKE_EVENTS | EPOLLHUP | EPOLLERR;
	switch (state_of(end->session, peer_of(end->role))) {
	case SLUICE_RING_ROLE_CLOSED:
		return WAKE_EVENTS | EPOLLRDHUP;
	case SLUICE_RING_ROLE_DIED:
		return WAKE_EVENTS | EPOLLHUP | EPOLLERR;
	}
	own = sluice_ring_memory_ctrl(end->session->memory, end->role);
	return peer_wake_seq(end) != READ_ONCE(own->wake_ack) ? WAKE_EVENTS : 0;
}

/* ---- calls on an endpoint ---- */

static int ring_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct sluice_ring_endpoint *end = ring_endpoint(file);
	struct sluice_ring *ring = ring_of(end->endpoint.channel);
	int err = sluice_ring_memory_check_mmap(vma, ring->capacity, end->role);

	if (err)
		return err;
	/* First: other threads can use pages as soon as they are mapped. */
	spin_lock(&ring->lock);
	if (is_attached(end))
		end->mapped = true;
	else
		err = -EPIPE;
	spin_unlock(&ring->lock);
	return err ?: sluice_ring_memory_mmap(end->session->memory, vma, end->role);
}

/* Under the ring's lock. */
static void fill_session_info(const struct sluice_ring *ring,
			      const struct sluice_ring_session *session,
			      struct sluice_ring_info *info)
{
	*info = (struct sluice_ring_info) {
		.node = ring->node,
		.capacity = ring->capacity,
	};
	if (!session)
		return;
	info->producer = session->sides[SLUICE_RING_SIDE_PRODUCER].state;
	info->consumer = session->sides[SLUICE_RING_SIDE_CONSUMER].state;
	info->published = position(session, SLUICE_RING_SIDE_PRODUCER);
	info->released = position(session, SLUICE_RING_SIDE_CONSUMER);
}

static long ring_get_info(struct sluice_ring_endpoint *end, struct sluice_ring_info __user *user)
{
	struct sluice_ring *ring = ring_of(end->endpoint.channel);
	struct sluice_ring_info info;
	u32 user_size;
	int err = sluice_user_struct_size(user, SLUICE_RING_INFO_SIZE_VER0, &user_size);

	if (err)
		return err;
	spin_lock(&ring->lock);
	fill_session_info(ring, end->session, &info);
	spin_unlock(&ring->lock);
	info.role = abi_role(end->role);
	return sluice_user_struct_write(user, &info, sizeof(info), user_size);
}

static long ring_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct sluice_ring_endpoint *end = ring_endpoint(file);
	void __user *user = (void __user *)argument;

	if (_IOC_TYPE(command) != SLUICE_IOCTL_TYPE)
		return -ENOTTY;

	/* Only by number: the size, which is part of the command, may grow. */
	switch (_IOC_NR(command)) {
	case _IOC_NR(SLUICE_RING_WAKE):
		return ring_wake(end);
	case _IOC_NR(SLUICE_RING_WAIT):
		return ring_wait(end, user);
	case _IOC_NR(SLUICE_RING_DETACH):
		return end_role(ring_of(end->endpoint.channel), end, SLUICE_RING_CLOSED);
	case _IOC_NR(SLUICE_RING_INFO):
		return ring_get_info(end, user);
	default:
		return sluice_endpoint_ioctl(file, command, user);
	}
}

/* ---- lifetime of the channel ---- */

/* The capacity for a request, or 0. */
static u64 ring_capacity_for(u64 bytes)
{
	if (bytes > SLUICE_RING_CAPACITY_MAX)
		return 0;
	return bytes ? roundup_pow_of_two(max_t(u64, bytes, PAGE_SIZE)) : DEFAULT_CAPACITY;
}

/* 0, or -EINVAL: parameters that are not zero but unknown, or a node without memory. */
static int parse_node(const struct sluice_ring_params *params, int *node)
{
	*node = NUMA_NO_NODE;
	if (!params)
		return 0;
	if (params->flags || params->reserved)
		return -EINVAL;
	*node = params->node;
	if (*node == NUMA_NO_NODE)
		return 0;
	return *node >= 0 && *node < MAX_NUMNODES && node_state(*node, N_MEMORY) ? 0 : -EINVAL;
}

static struct sluice_channel *ring_create(const struct sluice_channel_request *request)
{
	u64 capacity = ring_capacity_for(request->capacity);
	struct sluice_ring *ring;
	int node, err;

	err = parse_node(request->params, &node);
	if (err || !capacity)
		return ERR_PTR(-EINVAL);
	ring = kzalloc(sizeof(*ring), request->gfp);
	if (!ring)
		return ERR_PTR(-ENOMEM);
	err = sluice_channel_init(&ring->channel, request, capacity);
	if (err) {
		kfree(ring);
		return ERR_PTR(err);
	}
	ring->capacity = capacity;
	ring->node = node;
	mutex_init(&ring->begin_mutex);
	spin_lock_init(&ring->lock);
	return &ring->channel;
}

static void ring_free(struct sluice_channel *channel)
{
	struct sluice_ring *ring = ring_of(channel);

	session_put(ring->session);
	kfree(ring);
}

static void ring_fill_state(struct sluice_channel *channel, void *state)
{
	struct sluice_ring *ring = ring_of(channel);

	spin_lock(&ring->lock);
	fill_session_info(ring, ring->session, state);
	spin_unlock(&ring->lock);
}

/* Under the lock: the sides that sleep or are polled. */
static unsigned int ring_waiting(const struct sluice_ring *ring)
{
	struct sluice_ring_session *session = ring->session;

	if (!session)
		return 0;
	return sluice_wait_is_used(&session->sides[SLUICE_RING_SIDE_PRODUCER].wait.head) +
	       sluice_wait_is_used(&session->sides[SLUICE_RING_SIDE_CONSUMER].wait.head);
}

/* The sides may store any position: `bytes` is at most the capacity. */
static void ring_fill_info(struct sluice_channel *channel, struct sluice_channel_info *info)
{
	struct sluice_ring *ring = ring_of(channel);
	struct sluice_ring_info state;

	spin_lock(&ring->lock);
	fill_session_info(ring, ring->session, &state);
	info->waiting = ring_waiting(ring);
	spin_unlock(&ring->lock);
	info->total_bytes = state.published;
	info->readers = state.consumer == SLUICE_RING_ROLE_TAKEN;
	info->writers = state.producer == SLUICE_RING_ROLE_TAKEN;
	info->capacity = state.capacity;
	if (state.published > state.released)
		info->bytes = min(state.published - state.released, state.capacity);
}

static const struct file_operations ring_fops = {
	.owner		= THIS_MODULE,
	.release	= sluice_endpoint_release,
	.show_fdinfo	= sluice_endpoint_show_fdinfo,
	.mmap		= ring_mmap,
	.poll		= ring_poll,
	.unlocked_ioctl	= ring_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
};

const struct sluice_kind sluice_ring_kind = {
	.number		= SLUICE_KIND_RING,
	.name		= "ring",
	.file_name	= "[sluice-ring]",
	.is_mapped	= true,
	.has_roles	= true,
	.fops		= &ring_fops,
	.create		= ring_create,
	.free		= ring_free,
	.destroy	= ring_destroy,
	.endpoint_size	= sizeof(struct sluice_ring_endpoint),
	.attach		= ring_attach,
	.detach		= ring_detach,
	.fill_info	= ring_fill_info,
	.params_size	= sizeof(struct sluice_ring_params),
	.params_size_ver0 = SLUICE_RING_PARAMS_SIZE_VER0,
	.state_size	= sizeof(struct sluice_ring_info),
	.state_size_ver0 = SLUICE_RING_INFO_SIZE_VER0,
	.fill_state	= ring_fill_state,
};
