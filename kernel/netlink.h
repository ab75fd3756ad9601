/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The generic netlink family "sluice": requests about maps. spec/sluice.yaml describes the
 * messages; map_netlink.c executes them.
 *
 * Life: the family exists while the module is loaded. A socket owns handles, each a file of a map;
 * they go with it. A handle holds the socket, so that its address identifies it as long as the
 * handle exists, and the file holds the module.
 *
 * Requests run in the system call of the sender, under a lock of generic netlink that is common to
 * the host. Therefore none waits, except for a lock that is held briefly and for memory.
 */
#ifndef SLUICE_NETLINK_H
#define SLUICE_NETLINK_H

#include <linux/cache.h>
#include <net/genetlink.h>

#include <uapi/linux/sluice.h>

extern struct genl_family sluice_netlink_family;
/* Of SLUICE_NL_A_STEP in a request. */
extern const struct nla_policy sluice_netlink_step_policy[];

int sluice_netlink_init(void);
void sluice_netlink_exit(void);

/* ---- map_netlink.c ---- */

int sluice_map_netlink_open(struct sk_buff *skb, struct genl_info *info);
int sluice_map_netlink_get(struct sk_buff *skb, struct genl_info *info);
int sluice_map_netlink_set(struct sk_buff *skb, struct genl_info *info);
int sluice_map_netlink_delete(struct sk_buff *skb, struct genl_info *info);
int sluice_map_netlink_batch(struct sk_buff *skb, struct genl_info *info);
int sluice_map_netlink_info(struct sk_buff *skb, struct genl_info *info);
int sluice_map_netlink_dump_start(struct netlink_callback *cb);
int sluice_map_netlink_dump(struct sk_buff *skb, struct netlink_callback *cb);
int sluice_map_netlink_dump_done(struct netlink_callback *cb);

/* ---- netlink_handle.c: the files that sockets have opened, and what they watch ---- */

/*
 * The handle keeps a reference to the file of its own. Returns its number, greater than 0, or
 * -EMFILE, -ENOMEM.
 */
int sluice_netlink_handle_add(struct sock *sk, struct file *file);
/* The file of a handle with a reference, or NULL. */
struct file *sluice_netlink_handle_file(struct sock *sk, u32 number);
int sluice_netlink_close(struct sk_buff *skb, struct genl_info *info);
int sluice_netlink_watch(struct sk_buff *skb, struct genl_info *info);

int sluice_netlink_handle_init(void);
void sluice_netlink_handle_exit(void);

#endif
