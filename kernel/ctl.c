// SPDX-License-Identifier: GPL-2.0
#include <linux/bits.h>
#include <linux/err.h>
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include <uapi/linux/sluice.h>

#include "channel.h"
#include "ctl.h"
#include "endpoint.h"
#include "kind.h"
#include "scope.h"
#include "user_struct.h"

#define OPEN_FLAGS (SLUICE_OPEN_READ | SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE | \
		    SLUICE_OPEN_EXCL | SLUICE_OPEN_PERSIST | SLUICE_OPEN_NONBLOCK | \
		    SLUICE_OPEN_ANY_OWNER)
#define CREATE_FLAGS (SLUICE_OPEN_EXCL | SLUICE_OPEN_PERSIST | SLUICE_OPEN_ANY_OWNER)

/* Storage for a structure of any kind. */
union kind_struct {
	u8 bytes[SLUICE_KIND_STRUCT_MAX];
	u64 alignment;
};

/* ---- identification of a channel ---- */

/* Names are compared with memcmp() over the whole array, so the padding must be zero. */
static bool is_name(const u8 *name)
{
	size_t length = strnlen(name, SLUICE_NAME_SIZE);

	if (!length || length == SLUICE_NAME_SIZE ||
	    memchr_inv(name + length, 0, SLUICE_NAME_SIZE - length))
		return false;
	return !memchr(name, '/', length) && strcmp(name, ".") && strcmp(name, "..");
}

int sluice_ctl_parse_name(struct sluice_channel_key *key, u32 kind, const u8 *name)
{
	if (!sluice_kind_find(kind) || !is_name(name))
		return -EINVAL;
	key->kind = kind;
	memcpy(key->name, name, SLUICE_NAME_SIZE);
	return 0;
}

int sluice_ctl_access_scope(struct sluice_scope_access *access, int fd)
{
	if (fd == SLUICE_SCOPE_SELF)
		return sluice_scope_access_self(access);
	if (fd == SLUICE_SCOPE_ROOT)
		return sluice_scope_access_root(access);
	return sluice_scope_access_fd(access, fd);
}

static int ctl_resolve(struct sluice_scope_access *access, struct sluice_channel_key *key,
		       int scope_fd,
		       u32 kind, const u8 *name)
{
	int err = sluice_ctl_parse_name(key, kind, name);

	return err ?: sluice_ctl_access_scope(access, scope_fd);
}

/* ---- open ---- */

bool sluice_ctl_are_open_flags(const struct sluice_kind *kind, u32 flags)
{
	u32 access = flags & (SLUICE_OPEN_READ | SLUICE_OPEN_WRITE);
	bool creates = flags & SLUICE_OPEN_CREATE;

	if (flags & ~OPEN_FLAGS)
		return false;
	if (!access || (kind->has_roles && access == (SLUICE_OPEN_READ | SLUICE_OPEN_WRITE)))
		return false;
	return creates || !(flags & CREATE_FLAGS);
}

static bool is_valid_open(const struct sluice_open *open, const struct sluice_kind *kind)
{
	return !open->reserved && sluice_ctl_are_open_flags(kind, open->flags) &&
	       !(open->mode & ~0777);
}

/* Reads the parameters of the kind into @params and sets them in @request. */
static int read_params(struct sluice_channel_request *request, union kind_struct *params,
		       u64 address)
{
	const struct sluice_kind *kind = request->kind;

	if (!address)
		return 0;
	if (!kind->params_size)
		return -EINVAL;
	request->params = params;
	return sluice_user_struct_read(params, kind->params_size, kind->params_size_ver0,
				       u64_to_user_ptr(address));
}

static long install(int fd, struct file *file)
{
	if (IS_ERR(file)) {
		put_unused_fd(fd);
		return PTR_ERR(file);
	}
	fd_install(fd, file);
	return fd;
}

/* The descriptor comes first, so that an open never has to be undone. */
static long install_file(const struct sluice_channel_request *request)
{
	int fd = get_unused_fd_flags(O_CLOEXEC);

	return fd < 0 ? fd : install(fd, sluice_endpoint_create_file(request));
}

static long ctl_open(struct sluice_open __user *user)
{
	struct sluice_channel_request request = { .began = jiffies };
	union kind_struct params;
	struct sluice_open open;
	long ret;

	ret = sluice_user_struct_read(&open, sizeof(open), SLUICE_OPEN_SIZE_VER0, user);
	if (ret)
		return ret;
	request.kind = sluice_kind_find(open.kind);
	if (!request.kind || !is_valid_open(&open, request.kind))
		return -EINVAL;
	request.flags = open.flags;
	request.mode = open.mode;
	request.capacity = open.capacity;
	request.gfp = SLUICE_QUOTA_GFP;
	ret = read_params(&request, &params, open.params);
	if (ret)
		return ret;
	ret = ctl_resolve(&request.access, &request.key, open.scope_fd, open.kind, open.name);
	if (ret)
		return ret;
	ret = install_file(&request);
	sluice_scope_put(request.access.scope);
	return ret;
}

/* ---- unlink and destroy ---- */

static long ctl_unlink(struct sluice_unlink __user *user, bool destroy)
{
	struct sluice_scope_access access;
	struct sluice_channel_key key;
	struct sluice_unlink unlink;
	long ret;

	ret = sluice_user_struct_read(&unlink, sizeof(unlink), SLUICE_UNLINK_SIZE_VER0, user);
	if (ret)
		return ret;
	if (unlink.flags)
		return -EINVAL;
	ret = ctl_resolve(&access, &key, unlink.scope_fd, unlink.kind, unlink.name);
	if (ret)
		return ret;
	ret = destroy ? sluice_channel_destroy(&access, &key) :
			sluice_channel_unlink(&access, &key);
	sluice_scope_put(access.scope);
	return ret;
}

/* ---- info ---- */

int sluice_ctl_write_info(struct sluice_channel *channel, struct sluice_channel_info __user *user)
{
	struct sluice_channel_info info;
	u32 user_size;
	int err = sluice_user_struct_size(user, SLUICE_CHANNEL_INFO_SIZE_VER0, &user_size);

	if (err)
		return err;
	sluice_channel_fill_info(channel, &info);
	return sluice_user_struct_write(user, &info, sizeof(info), user_size);
}

static int write_state(struct sluice_channel *channel, void __user *user)
{
	const struct sluice_kind *kind = channel->kind;
	union kind_struct state = {};
	u32 user_size;
	int err;

	if (!kind->state_size)
		return -EINVAL;
	err = sluice_user_struct_size(user, kind->state_size_ver0, &user_size);
	if (err)
		return err;
	kind->fill_state(channel, &state);
	return sluice_user_struct_write(user, &state, kind->state_size, user_size);
}

static long write_all_info(struct sluice_channel *channel, const struct sluice_info *info)
{
	long ret = 0;

	if (info->info)
		ret = sluice_ctl_write_info(channel, u64_to_user_ptr(info->info));
	if (!ret && info->state)
		ret = write_state(channel, u64_to_user_ptr(info->state));
	return ret;
}

static long ctl_info(struct sluice_info __user *user)
{
	struct sluice_scope_access access;
	struct sluice_channel *channel;
	struct sluice_channel_key key;
	struct sluice_info info;
	long ret;

	ret = sluice_user_struct_read(&info, sizeof(info), SLUICE_INFO_SIZE_VER0, user);
	if (ret)
		return ret;
	if (info.flags)
		return -EINVAL;
	ret = ctl_resolve(&access, &key, info.scope_fd, info.kind, info.name);
	if (ret)
		return ret;
	channel = sluice_channel_lookup(&access, &key);
	sluice_scope_put(access.scope);
	if (IS_ERR(channel))
		return PTR_ERR(channel);
	ret = write_all_info(channel, &info);
	sluice_channel_put(channel);
	return ret;
}

/* ---- list ---- */

/* The cursor need not exist as a channel. All zeros is the beginning. */
static int parse_cursor(struct sluice_channel_key *key, const struct sluice_list *list)
{
	if (list->kind)
		return sluice_ctl_parse_name(key, list->kind, list->name);
	memset(key, 0, sizeof(*key));
	return memchr_inv(list->name, 0, sizeof(list->name)) ? -EINVAL : 0;
}

/* Copies the smaller of both sizes of each entry. @count or -EFAULT. */
static long write_entries(const struct sluice_list *list, struct sluice_channel_info *infos,
			  long count)
{
	long i;

	for (i = 0; i < count; i++) {
		void __user *entry = u64_to_user_ptr(list->entries + i * list->entry_size);
		int err = sluice_user_struct_write(entry, &infos[i], sizeof(infos[i]),
						   list->entry_size);

		if (err)
			return err;
	}
	return count;
}

static long list_channels(const struct sluice_list *list, const struct sluice_channel_key *key)
{
	unsigned int most = min_t(u32, list->count, SLUICE_LIST_MAX);
	struct sluice_channel_info *infos;
	struct sluice_scope_access access;
	long ret;

	ret = sluice_ctl_access_scope(&access, list->scope_fd);
	if (ret)
		return ret;
	infos = kcalloc(SLUICE_LIST_MAX, sizeof(*infos), SLUICE_QUOTA_GFP);
	ret = infos ? sluice_channel_list(&access, key, infos, most) : -ENOMEM;
	sluice_scope_put(access.scope);
	if (ret > 0)
		ret = write_entries(list, infos, ret);
	kfree(infos);
	return ret;
}

static long ctl_list(struct sluice_list __user *user)
{
	struct sluice_channel_key key;
	struct sluice_list list;
	long ret;

	ret = sluice_user_struct_read(&list, sizeof(list), SLUICE_LIST_SIZE_VER0, user);
	if (ret)
		return ret;
	if (list.flags ||
	    !sluice_user_is_entry_size(list.entry_size, SLUICE_CHANNEL_INFO_SIZE_VER0))
		return -EINVAL;
	ret = parse_cursor(&key, &list);
	if (ret)
		return ret;
	ret = list_channels(&list, &key);
	return ret < 0 ? ret : put_user((u32)ret, &user->count);
}

/* ---- features ---- */

static u64 all_kinds(void)
{
	const struct sluice_kind *kind = NULL;
	u64 kinds = 0;

	while ((kind = sluice_kind_next(kind)))
		kinds |= BIT_ULL(kind->number);
	return kinds;
}

static long ctl_features(struct sluice_features __user *user)
{
	struct sluice_features features = {
		.abi = SLUICE_ABI,
		.kinds = all_kinds(),
		.open_flags = OPEN_FLAGS,
	};
	u32 user_size;
	int err = sluice_user_struct_size(user, SLUICE_FEATURES_SIZE_VER0, &user_size);

	return err ?: sluice_user_struct_write(user, &features, sizeof(features), user_size);
}

/* ---- usage ---- */

static long ctl_usage(struct sluice_usage __user *user)
{
	struct sluice_scope_access access;
	struct sluice_usage usage;
	u32 user_size;
	long ret;

	ret = sluice_user_struct_read(&usage, sizeof(usage), SLUICE_USAGE_SIZE_VER0, user);
	if (ret)
		return ret;
	user_size = usage.size;
	if (usage.flags || usage.reserved)
		return -EINVAL;
	ret = sluice_ctl_access_scope(&access, usage.scope_fd);
	if (ret)
		return ret;
	ret = sluice_channel_usage(&access, &usage);
	sluice_scope_put(access.scope);
	return ret ?: sluice_user_struct_write(user, &usage, sizeof(usage), user_size);
}

/* ---- keeper ---- */

static const struct sluice_kind *kind_with_keeper(void)
{
	const struct sluice_kind *kind = NULL;

	do {
		kind = sluice_kind_next(kind);
	} while (kind && !kind->open_keeper);
	return kind;
}

static long ctl_keep(struct sluice_keep __user *user)
{
	const struct sluice_kind *kind = kind_with_keeper();
	struct sluice_keep keep;
	int err, fd;

	err = sluice_user_struct_read(&keep, sizeof(keep), SLUICE_KEEP_SIZE_VER0, user);
	if (err)
		return err;
	if (keep.flags & ~SLUICE_KEEP_TABLES)
		return -EINVAL;
	if (!kind)
		return -ENOTTY;
	fd = get_unused_fd_flags(O_CLOEXEC);
	return fd < 0 ? fd : install(fd, kind->open_keeper(keep.flags));
}

static long ctl_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	void __user *user = (void __user *)argument;

	if (_IOC_TYPE(command) != SLUICE_IOCTL_TYPE)
		return -ENOTTY;

	/* Only by number: the size, which is part of the command, may grow. */
	switch (_IOC_NR(command)) {
	case _IOC_NR(SLUICE_CTL_OPEN):
		return ctl_open(user);
	case _IOC_NR(SLUICE_CTL_UNLINK):
		return ctl_unlink(user, false);
	case _IOC_NR(SLUICE_CTL_DESTROY):
		return ctl_unlink(user, true);
	case _IOC_NR(SLUICE_CTL_INFO):
		return ctl_info(user);
	case _IOC_NR(SLUICE_CTL_LIST):
		return ctl_list(user);
	case _IOC_NR(SLUICE_CTL_FEATURES):
		return ctl_features(user);
	case _IOC_NR(SLUICE_CTL_USAGE):
		return ctl_usage(user);
	case _IOC_NR(SLUICE_CTL_KEEP):
		return ctl_keep(user);
	default:
		return -ENOTTY;
	}
}

const struct file_operations sluice_ctl_fops = {
	.owner		= THIS_MODULE,
	.open		= nonseekable_open,
	.unlocked_ioctl	= ctl_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
};
