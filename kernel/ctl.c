// SPDX-License-Identifier: GPL-2.0
#include <linux/bits.h>
#include <linux/err.h>
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include <uapi/linux/sluice.h>

#include "user_struct.h"
#include "channel.h"
#include "ctl.h"
#include "pipe.h"
#include "scope.h"

#define OPEN_FLAGS (SLUICE_OPEN_READ | SLUICE_OPEN_WRITE | SLUICE_OPEN_CREATE | \
		    SLUICE_OPEN_EXCL | SLUICE_OPEN_PERSIST | SLUICE_OPEN_NONBLOCK)

static const struct sluice_channel_kind *kind_of(u32 number)
{
	return number == sluice_pipe_kind.number ? &sluice_pipe_kind : NULL;
}

/* Those with nothing behind their end are equal only if they are the same, hence the zeros. */
static bool is_name(const u8 *name)
{
	size_t length = strnlen(name, SLUICE_NAME_SIZE);

	if (!length || length == SLUICE_NAME_SIZE ||
	    memchr_inv(name + length, 0, SLUICE_NAME_SIZE - length))
		return false;
	return !memchr(name, '/', length) && strcmp(name, ".") && strcmp(name, "..");
}

static int parse_key(struct sluice_channel_key *key, u32 kind, const u8 *name)
{
	if (!kind_of(kind) || !is_name(name))
		return -EINVAL;
	key->kind = kind;
	memcpy(key->name, name, SLUICE_NAME_SIZE);
	return 0;
}

static int access_scope(struct sluice_scope_access *access, int fd)
{
	if (fd == SLUICE_SCOPE_SELF)
		return sluice_scope_access_self(access);
	return sluice_scope_access_fd(access, fd);
}

static int resolve_scope(struct sluice_scope_access *access, struct sluice_channel_key *key,
			 int scope_fd, u32 kind, const u8 *name)
{
	int err = parse_key(key, kind, name);

	return err ?: access_scope(access, scope_fd);
}

static bool is_valid_open(const struct sluice_open *open)
{
	bool creates = open->flags & SLUICE_OPEN_CREATE;

	if (open->size < sizeof(*open) || open->reserved || open->flags & ~OPEN_FLAGS)
		return false;
	if (!(open->flags & (SLUICE_OPEN_READ | SLUICE_OPEN_WRITE)))
		return false;
	if (open->flags & (SLUICE_OPEN_EXCL | SLUICE_OPEN_PERSIST) && !creates)
		return false;
	return !(open->mode & ~0777);
}

static long open_file(const struct sluice_channel_request *request)
{
	struct file *file;
	int fd = get_unused_fd_flags(O_CLOEXEC);

	if (fd < 0)
		return fd;
	file = sluice_pipe_open_channel(request);
	if (IS_ERR(file)) {
		put_unused_fd(fd);
		return PTR_ERR(file);
	}
	fd_install(fd, file);
	return fd;
}

static long ctl_open(struct sluice_open __user *user)
{
	struct sluice_channel_request request = {};
	struct sluice_open open;
	long ret;

	ret = sluice_user_struct_copy(&open, sizeof(open), user);
	if (ret)
		return ret;
	if (!is_valid_open(&open))
		return -EINVAL;
	ret = resolve_scope(&request.access, &request.key, open.scope_fd, open.kind, open.name);
	if (ret)
		return ret;
	request.kind = kind_of(open.kind);
	request.flags = open.flags;
	request.mode = open.mode;
	request.capacity = open.capacity;
	ret = open_file(&request);
	sluice_scope_put(request.access.scope);
	return ret;
}

static long ctl_unlink(struct sluice_name __user *user)
{
	struct sluice_scope_access access;
	struct sluice_channel_key key;
	struct sluice_name name;
	long ret;

	ret = sluice_user_struct_copy(&name, sizeof(name), user);
	if (ret)
		return ret;
	if (name.size < sizeof(name) || name.flags)
		return -EINVAL;
	ret = resolve_scope(&access, &key, name.scope_fd, name.kind, name.name);
	if (ret)
		return ret;
	ret = sluice_channel_unlink(&access, &key);
	sluice_scope_put(access.scope);
	return ret;
}

static long ctl_info(struct sluice_info __user *user)
{
	struct sluice_scope_access access;
	struct sluice_channel_key key;
	struct sluice_info info;
	long ret;

	ret = sluice_user_struct_copy(&info, sizeof(info), user);
	if (ret)
		return ret;
	if (info.size < offsetofend(struct sluice_info, name) || info.flags)
		return -EINVAL;
	ret = resolve_scope(&access, &key, info.scope_fd, info.kind, info.name);
	if (ret)
		return ret;
	ret = sluice_channel_get_info(&access, &key, &info.info);
	sluice_scope_put(access.scope);
	return ret ?: sluice_user_struct_return(user, &info, sizeof(info), info.size);
}

/* The cursor may be no channel's, and at the beginning it is nothing at all. */
static int set_cursor(struct sluice_channel_key *key, const struct sluice_list *list)
{
	if (list->kind)
		return parse_key(key, list->kind, list->name);
	memset(key, 0, sizeof(*key));
	return memchr_inv(list->name, 0, sizeof(list->name)) ? -EINVAL : 0;
}

static long list_channels(struct sluice_list *list, const struct sluice_channel_key *key)
{
	unsigned int most = min_t(u32, list->count, SLUICE_LIST_MAX);
	struct sluice_channel_info *infos;
	struct sluice_scope_access access;
	long ret;

	ret = access_scope(&access, list->scope_fd);
	if (ret)
		return ret;
	infos = kcalloc(SLUICE_LIST_MAX, sizeof(*infos), GFP_KERNEL_ACCOUNT);
	ret = infos ? sluice_channel_list(&access, key, infos, most) : -ENOMEM;
	sluice_scope_put(access.scope);
	if (ret > 0 && copy_to_user(u64_to_user_ptr(list->entries), infos, ret * sizeof(*infos)))
		ret = -EFAULT;
	kfree(infos);
	return ret;
}

static long ctl_list(struct sluice_list __user *user)
{
	struct sluice_channel_key key;
	struct sluice_list list;
	long ret;

	ret = sluice_user_struct_copy(&list, sizeof(list), user);
	if (ret)
		return ret;
	if (list.size < sizeof(list) || list.flags ||
	    list.entry_size != sizeof(struct sluice_channel_info))
		return -EINVAL;
	ret = set_cursor(&key, &list);
	if (ret)
		return ret;
	ret = list_channels(&list, &key);
	return ret < 0 ? ret : put_user((u32)ret, &user->count);
}

static long ctl_features(struct sluice_features __user *user)
{
	struct sluice_features features;
	u32 size;
	long ret;

	ret = sluice_user_struct_copy(&features, sizeof(features), user);
	if (ret)
		return ret;
	size = min_t(u32, features.size, sizeof(features));
	features = (struct sluice_features) {
		.size = size,
		.abi = SLUICE_ABI,
		.kinds = BIT(SLUICE_KIND_PIPE),
		.open_flags = OPEN_FLAGS,
	};
	return sluice_user_struct_return(user, &features, sizeof(features), size);
}

static long ctl_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	void __user *user = (void __user *)argument;

	if (_IOC_TYPE(command) != SLUICE_IOCTL_TYPE)
		return -ENOTTY;

	/* By number alone: the size, which is part of the command, may grow. */
	switch (_IOC_NR(command)) {
	case _IOC_NR(SLUICE_CTL_OPEN):
		return ctl_open(user);
	case _IOC_NR(SLUICE_CTL_UNLINK):
		return ctl_unlink(user);
	case _IOC_NR(SLUICE_CTL_INFO):
		return ctl_info(user);
	case _IOC_NR(SLUICE_CTL_LIST):
		return ctl_list(user);
	case _IOC_NR(SLUICE_CTL_FEATURES):
		return ctl_features(user);
	default:
		return -ENOTTY;
	}
}

static const struct file_operations ctl_fops = {
	.owner		= THIS_MODULE,
	.open		= nonseekable_open,
	.unlocked_ioctl	= ctl_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
};

/* Its open never sleeps: the other misc devices of the host wait for each one's. */
static struct miscdevice ctl_device = {
	.minor		= MISC_DYNAMIC_MINOR,
	.name		= "sluice-ctl",
	.nodename	= "sluice/ctl",
	.mode		= 0666,
	.fops		= &ctl_fops,
};

int sluice_ctl_init(void)
{
	return misc_register(&ctl_device);
}

void sluice_ctl_exit(void)
{
	misc_deregister(&ctl_device);
}
