// SPDX-License-Identifier: GPL-2.0
/*
 * shared_map, a store of keys and values, for comparison only: the benchmark measures it together
 * with the maps of Sluice. Do not load it to store data. Its inefficiencies are kept on purpose.
 * shared_map.h describes what programs see.
 *
 * One table for the whole system holds all values. Requests come over a netlink socket, and are
 * executed in the sender's process. One lock protects the table; it is held while the answer is
 * allocated and filled in, and while a file is written. It is a mutex or, with rwsem=1, a
 * reader-writer semaphore, which gets then share. The table is resizable and could be read without
 * a lock, which the store does not make use of. There is no deletion.
 *
 * If the directory exists when the module is loaded, each value is also written to a file there,
 * whose name is the key, before the request is answered, and all files are loaded. The module holds
 * the directory, so its file system cannot be unmounted. A file is truncated and then written: one
 * that a crash interrupts is damaged. Without the directory values are lost with the module.
 *
 * Sockets of the protocol hold the module. Netlink offers the protocol to every user of the initial
 * network namespace, so each request is checked for CAP_SYS_ADMIN.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/dcache.h>
#include <linux/err.h>
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/jhash.h>
#include <linux/kstrtox.h>
#include <linux/limits.h>
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/namei.h>
#include <linux/netlink.h>
#include <linux/path.h>
#include <linux/rhashtable.h>
#include <linux/rwsem.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <net/net_namespace.h>
#include <net/netlink.h>
#include <net/sock.h>

#include "shared_map.h"

static_assert(sizeof(struct shared_map_message) == 32);
static_assert(SHARED_MAP_MAX_KEY == NAME_MAX + 1);

struct entry {
	struct rhash_head node;
	void *value;
	int length;		/* of the value */
	char key[];
};

/* A file to load. */
struct name {
	struct list_head node;
	char text[];
};

struct listing {
	struct dir_context context;
	struct list_head names;
	int err;
};

static struct rhashtable table;
static struct path directory_path;	/* its dentry is NULL without files */
static struct sock *socket;	/* that of the kernel */

/* One of the two protects table, its entries and the files. */
static DEFINE_MUTEX(mutex);
static DECLARE_RWSEM(semaphore);

static char *directory = "/var/tmp/shared_map";
module_param(directory, charp, 0444);
MODULE_PARM_DESC(directory, "where values are stored in files, if it exists (/var/tmp/shared_map)");

static bool files = true;
module_param(files, bool, 0644);
MODULE_PARM_DESC(files, "write values to files if the directory exists (Y)");

/* Changed only with both locks held, so it is constant for the holder of the one that it names. */
static bool rwsem;

static int set_rwsem(const char *text, const struct kernel_param *parameter)
{
	bool wanted;
	int err = kstrtobool(text, &wanted);

	if (err)
		return err;
	mutex_lock(&mutex);
	down_write(&semaphore);
	WRITE_ONCE(rwsem, wanted);
	up_write(&semaphore);
	mutex_unlock(&mutex);
	return 0;
}

static const struct kernel_param_ops rwsem_ops = {
	.set = set_rwsem,
	.get = param_get_bool,
};
module_param_cb(rwsem, &rwsem_ops, &rwsem, 0644);
MODULE_PARM_DESC(rwsem, "lock by a reader-writer semaphore instead of a mutex (N)");

static void lock_by(bool by_semaphore, bool shared)
{
	if (!by_semaphore)
		mutex_lock(&mutex);
	else if (shared)
		down_read(&semaphore);
	else
		down_write(&semaphore);
}

static void unlock_by(bool by_semaphore, bool shared)
{
	if (!by_semaphore)
		mutex_unlock(&mutex);
	else if (shared)
		up_read(&semaphore);
	else
		up_write(&semaphore);
}

static void lock_table(bool shared)
{
	bool chosen = READ_ONCE(rwsem);

	lock_by(chosen, shared);
	while (chosen != READ_ONCE(rwsem)) {
		unlock_by(chosen, shared);
		chosen = !chosen;
		lock_by(chosen, shared);
	}
}

static void unlock_table(bool shared)
{
	unlock_by(rwsem, shared);
}

static u32 hash_key(const void *key, u32 length, u32 seed)
{
	return jhash(key, strlen(key), seed);
}

static u32 hash_entry(const void *object, u32 length, u32 seed)
{
	const struct entry *entry = object;

	return hash_key(entry->key, 0, seed);
}

static int compare_entry(struct rhashtable_compare_arg *wanted, const void *object)
{
	const struct entry *entry = object;

	return strcmp(entry->key, wanted->key);
}

static const struct rhashtable_params table_params = {
	.head_offset = offsetof(struct entry, node),
	.hashfn = hash_key,
	.obj_hashfn = hash_entry,
	.obj_cmpfn = compare_entry,
};

static void free_entry(void *object, void *unused)
{
	struct entry *entry = object;

	kfree(entry->value);
	kfree(entry);
}

static struct entry *create_entry(const char *key)
{
	size_t size = strlen(key) + 1;
	struct entry *entry;
	int err;

	if (atomic_read(&table.nelems) >= SHARED_MAP_MAX_ENTRIES)
		return ERR_PTR(-ENOSPC);
	entry = kzalloc(struct_size(entry, key, size), GFP_KERNEL);
	if (!entry)
		return ERR_PTR(-ENOMEM);
	memcpy(entry->key, key, size);
	err = rhashtable_insert_fast(&table, &entry->node, table_params);
	if (err) {
		kfree(entry);
		return ERR_PTR(err);
	}
	return entry;
}

/* With the lock. Returns what to answer, or an error; takes the value in the former case. */
static int replace_value(const char *key, void *value, int length)
{
	struct entry *entry = rhashtable_lookup_fast(&table, key, table_params);
	int answer = entry ? SHARED_MAP_UPDATED : SHARED_MAP_CREATED;

	if (!entry)
		entry = create_entry(key);
	if (IS_ERR(entry))
		return PTR_ERR(entry);
	kfree(entry->value);
	entry->value = value;
	entry->length = length;
	return answer;
}

/* Not of a symbolic link, and without waiting for what a named pipe would wait for. */
static struct file *open_file(const char *key, int flags)
{
	struct file *file;

	file = file_open_root(&directory_path, key, flags | O_NOFOLLOW | O_NONBLOCK | O_LARGEFILE,
			      0600);
	if (!IS_ERR(file) && !S_ISREG(file_inode(file)->i_mode)) {
		fput(file);
		return ERR_PTR(-EINVAL);
	}
	return file;
}

static int write_file(const char *key, const void *value, int length)
{
	struct file *file = open_file(key, O_WRONLY | O_CREAT | O_TRUNC);
	loff_t position = 0;
	ssize_t written;

	if (IS_ERR(file))
		return PTR_ERR(file);
	written = kernel_write(file, value, length, &position);
	fput(file);
	if (written < 0)
		return written;
	return written == length ? 0 : -EIO;
}

/* Returns what to answer, or an error. */
static int set(const char *key, const void *value, int length)
{
	void *copy = kmemdup(value, length, GFP_KERNEL);
	int answer, err = 0;

	if (!copy)
		return -ENOMEM;
	lock_table(false);
	answer = replace_value(key, copy, length);
	if (answer < 0)
		kfree(copy);
	else if (directory_path.dentry && READ_ONCE(files))
		err = write_file(key, value, length);
	unlock_table(false);
	return err ?: answer;
}

static struct sk_buff *build_answer(int type, const void *value, int length)
{
	struct shared_map_message *message;
	struct nlmsghdr *header;
	struct sk_buff *answer;

	answer = nlmsg_new(sizeof(*message) + length, GFP_KERNEL);
	if (!answer)
		return NULL;
	header = nlmsg_put(answer, 0, 0, NLMSG_MIN_TYPE, sizeof(*message) + length, 0);
	message = nlmsg_data(header);
	*message = (struct shared_map_message){ .type = type, .value_length = length };
	memcpy(message->data, value, length);
	return answer;
}

static struct sk_buff *build_error(int err)
{
	__s32 value = -err;

	return build_answer(SHARED_MAP_ERROR, &value, sizeof(value));
}

static struct sk_buff *get(const char *key)
{
	const struct entry *entry;
	struct sk_buff *answer;

	lock_table(true);
	entry = rhashtable_lookup_fast(&table, key, table_params);
	if (entry)
		answer = build_answer(SHARED_MAP_VALUE, entry->value, entry->length);
	else
		answer = build_answer(SHARED_MAP_NOT_FOUND, "", 0);
	unlock_table(true);
	return answer;
}

/* Whether the key is a string of this length that can be the name of a file. */
static bool is_valid_key(const char *key, size_t length)
{
	return length > 1 && strnlen(key, length) == length - 1 && !strchr(key, '/') &&
	       strcmp(key, ".") && strcmp(key, "..");
}

static int check_request(const struct shared_map_message *request, int length)
{
	int left = length - (int)sizeof(*request);

	if (left < 0 || request->key_length < 0 || request->value_length < 0)
		return -EINVAL;
	if (request->key_length > SHARED_MAP_MAX_KEY)
		return -ENAMETOOLONG;
	if (request->value_length > SHARED_MAP_MAX_VALUE)
		return -EMSGSIZE;
	if (request->key_length + request->value_length != left)
		return -EINVAL;
	if (!is_valid_key(request->data, request->key_length))
		return -EINVAL;
	return 0;
}

static struct sk_buff *execute(struct sk_buff *skb, const struct nlmsghdr *header)
{
	const struct shared_map_message *request = nlmsg_data(header);
	const char *key = request->data;
	int result;

	if (!netlink_capable(skb, CAP_SYS_ADMIN))
		return build_error(-EPERM);
	result = check_request(request, nlmsg_len(header));
	if (result)
		return build_error(result);
	switch (request->type) {
	case SHARED_MAP_GET:
		return request->value_length ? build_error(-EINVAL) : get(key);
	case SHARED_MAP_SET:
		result = set(key, key + request->key_length, request->value_length);
		return result < 0 ? build_error(result) : build_answer(result, "", 0);
	default:
		return build_error(-EINVAL);
	}
}

static void receive(struct sk_buff *skb)
{
	const struct nlmsghdr *header = nlmsg_hdr(skb);
	struct sock *sender = NETLINK_CB(skb).sk;
	struct sk_buff *answer;

	if (!nlmsg_ok(header, skb->len))
		return;
	answer = execute(skb, header);
	if (!answer) {
		/* The sender would wait for an answer. */
		WRITE_ONCE(sender->sk_err, ENOBUFS);
		sk_error_report(sender);
		return;
	}
	nlmsg_hdr(answer)->nlmsg_seq = header->nlmsg_seq;
	/* A sender without room for the answer gets ENOBUFS from netlink. */
	nlmsg_unicast(skb->sk, answer, NETLINK_CB(skb).portid);
}

/* A file is not opened here, under the lock of the directory. */
static bool add_name(struct dir_context *context, const char *text, int length, loff_t position,
		     u64 inode, unsigned int type)
{
	struct listing *listing = container_of(context, struct listing, context);
	struct name *name;

	if (type != DT_REG && type != DT_UNKNOWN)
		return true;
	name = kzalloc(struct_size(name, text, length + 1), GFP_KERNEL);
	if (!name) {
		listing->err = -ENOMEM;
		return false;
	}
	memcpy(name->text, text, length);
	list_add_tail(&name->node, &listing->names);
	return true;
}

static int list_directory(struct listing *listing)
{
	struct file *file;
	int err;

	file = dentry_open(&directory_path, O_RDONLY | O_DIRECTORY, current_cred());
	if (IS_ERR(file))
		return PTR_ERR(file);
	err = iterate_dir(file, &listing->context);
	fput(file);
	return err ?: listing->err;
}

/* Returns the length, or an error. */
static ssize_t read_file(const char *key, void *value)
{
	struct file *file = open_file(key, O_RDONLY);
	loff_t position = 0;
	ssize_t length;

	if (IS_ERR(file))
		return PTR_ERR(file);
	if (i_size_read(file_inode(file)) > SHARED_MAP_MAX_VALUE)
		length = -EFBIG;
	else
		length = kernel_read(file, value, SHARED_MAP_MAX_VALUE, &position);
	fput(file);
	return length;
}

/* What cannot be loaded is skipped. */
static int load_file(const char *key, void *buffer)
{
	ssize_t length = read_file(key, buffer);
	void *value;
	int answer;

	if (length < 0) {
		pr_info("the file %s is not loaded: %zd\n", key, length);
		return 0;
	}
	value = kmemdup(buffer, length, GFP_KERNEL);
	if (!value)
		return -ENOMEM;
	lock_table(false);
	answer = replace_value(key, value, length);
	unlock_table(false);
	if (answer < 0)
		kfree(value);
	return min(answer, 0);
}

static int load_files(void)
{
	struct listing listing = {
		.context.actor = add_name,
		.names = LIST_HEAD_INIT(listing.names),
	};
	struct name *name, *next;
	void *buffer;
	int err;

	buffer = kmalloc(SHARED_MAP_MAX_VALUE, GFP_KERNEL);
	if (!buffer)
		return -ENOMEM;
	err = list_directory(&listing);
	list_for_each_entry_safe(name, next, &listing.names, node) {
		if (!err)
			err = load_file(name->text, buffer);
		kfree(name);
	}
	kfree(buffer);
	return err;
}

/* Without the directory there are no files. */
static int open_directory(void)
{
	int err = kern_path(directory, LOOKUP_FOLLOW | LOOKUP_DIRECTORY, &directory_path);

	if (!err)
		return load_files();
	directory_path = (struct path){};
	pr_info("values are not written to files: there is no directory %s\n", directory);
	return 0;
}

static void free_table(void)
{
	rhashtable_free_and_destroy(&table, free_entry, NULL);
	path_put(&directory_path);
}

static int __init shared_map_init(void)
{
	struct netlink_kernel_cfg config = { .input = receive };
	int err = rhashtable_init(&table, &table_params);

	if (err)
		return err;
	err = open_directory();
	if (err) {
		pr_err("cannot load the files in %s: %d\n", directory, err);
		goto free;
	}
	socket = netlink_kernel_create(&init_net, SHARED_MAP_PROTOCOL, &config);
	if (!socket) {
		pr_err("cannot create a socket of netlink protocol %d; another module may have it\n",
		       SHARED_MAP_PROTOCOL);
		err = -EBUSY;
		goto free;
	}
	return 0;
free:
	free_table();
	return err;
}

/* No socket of the protocol is open, so there is no request. */
static void __exit shared_map_exit(void)
{
	netlink_kernel_release(socket);
	free_table();
}

module_init(shared_map_init);
module_exit(shared_map_exit);

MODULE_DESCRIPTION("A naive store of keys and values behind netlink, for comparison only");
MODULE_AUTHOR("The Sluice developers");
MODULE_LICENSE("GPL");
