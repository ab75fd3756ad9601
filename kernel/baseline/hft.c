// SPDX-License-Identifier: GPL-2.0
/*
 * HFT, a source of packets in the kernel, for comparison only: the benchmark measures its ways of
 * publishing a packet together with those of Sluice. Do not load it to move data. Its
 * inefficiencies are kept on purpose. hft.h describes what programs see.
 *
 * One node, /dev/hft, has one simulator and physically contiguous pages that are allocated when the
 * module is loaded ("mode 555"). The simulator is an hrtimer: per interval it fills in one packet,
 * its time stamp counter last, and publishes it in the way that HFT_START chose, so that all ways
 * are measured from the same point:
 *
 *  - HFT_READ stores the packet and wakes all sleepers in read(). A packet that is not read before
 *    the next one is lost. read() ignores O_NONBLOCK, and there is no poll.
 *  - HFT_SLOT and HFT_SLOT_UNALIGNED copy it to mapped memory and count it next to it. The counter
 *    shares a cache line with the packet, or is itself in two. There is no barrier, which only
 *    suffices on processors that keep the order of stores, such as x86.
 *  - HFT_RING appends it to a ring in mapped memory, whose positions have cache lines of their own.
 *    HFT_RING_PAGES does so in single pages, to measure what contiguous ones are worth.
 *
 * The pages are mapped by their frame numbers, so nothing can pin them. A mapping holds its file,
 * and a file the module: the pages are freed when no mapping is left.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/hrtimer.h>
#include <linux/log2.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched/signal.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/timex.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>

#include "../compat.h"
#include "hft.h"

#define HFT_ANY_CPU (-1)

static_assert(offsetof(struct hft_packet, payload) == 32);
static_assert(offsetof(struct hft_ring, tail) == HFT_LINE);
static_assert(offsetof(struct hft_ring, packets) == 2 * HFT_LINE);
static_assert(sizeof(struct hft_ring) <= HFT_MAP_BYTES);

static struct {
	struct mutex control;	/* serializes start and stop; protects owner */
	struct file *owner;	/* that started the simulator, NULL while it is stopped */

	/* Set before the timer is started; then only the timer changes packet and counters. */
	struct hrtimer timer;
	struct hft_start settings;
	struct hft_packet packet;
	u64 published;
	u64 dropped;

	struct page *pages;
	void *memory;		/* of pages */
	void *scattered;	/* single pages, in contiguous addresses */

	spinlock_t lock;	/* protects newest and unread */
	struct hft_packet newest;
	bool unread;
	wait_queue_head_t queue;
} hft;

static u64 read_tsc(void)
{
#ifdef CONFIG_X86
	return rdtsc_ordered();
#else
	return get_cycles();
#endif
}

static void fill_packet(void)
{
	struct hft_packet *packet = &hft.packet;

	packet->sequence = hft.published + hft.dropped + 1;
	packet->cpu = raw_smp_processor_id();
	packet->size = hft.settings.size;
	memset(packet->payload, (u8)packet->sequence,
	       packet->size - offsetof(struct hft_packet, payload));
	packet->time_ns = ktime_get_ns();
	packet->tsc = read_tsc();
}

static bool publish_to_readers(void)
{
	unsigned long flags;

	spin_lock_irqsave(&hft.lock, flags);
	memcpy(&hft.newest, &hft.packet, hft.packet.size);
	WRITE_ONCE(hft.unread, true);
	spin_unlock_irqrestore(&hft.lock, flags);
	wake_up_interruptible(&hft.queue);
	return true;
}

static bool publish_to_slot(struct hft_slot *slot)
{
	memcpy(slot->packet, &hft.packet, hft.packet.size);
	/* Only against the compiler, which must not reorder the stores. */
	barrier();
	slot->head = hft.packet.sequence;
	barrier();
	return true;
}

static bool publish_aligned(void)
{
	return publish_to_slot(hft.memory);
}

static bool publish_unaligned(void)
{
	return publish_to_slot(hft.memory + HFT_UNALIGNED_OFFSET);
}

/* What the consumer can write never gets an address: head is that of the kernel. */
static bool publish_to(struct hft_ring *ring)
{
	u32 size = hft.packet.size;
	u64 head = hft.published;

	/* A tail beyond head is invalid; its ring counts as full. */
	if (head - READ_ONCE(ring->tail) >= HFT_RING_BYTES / size)
		return false;
	memcpy(&ring->packets[head * size % HFT_RING_BYTES], &hft.packet, size);
	/* Pairs with the consumer's fence between polling head and reading the packet. */
	smp_wmb();
	WRITE_ONCE(ring->head, head + 1);
	return true;
}

static bool publish_to_ring(void)
{
	return publish_to(hft.memory);
}

static bool publish_to_ring_pages(void)
{
	return publish_to(hft.scattered);
}

static bool (*const publish[HFT_VARIANTS])(void) = {
	[HFT_READ] = publish_to_readers,
	[HFT_SLOT] = publish_aligned,
	[HFT_SLOT_UNALIGNED] = publish_unaligned,
	[HFT_RING] = publish_to_ring,
	[HFT_RING_PAGES] = publish_to_ring_pages,
};

/* Intervals that passed meanwhile have no packet. */
static enum hrtimer_restart simulate(struct hrtimer *timer)
{
	hrtimer_forward_now(timer, ns_to_ktime(hft.settings.interval_ns));
	fill_packet();
	if (publish[hft.settings.variant]())
		WRITE_ONCE(hft.published, hft.published + 1);
	else
		WRITE_ONCE(hft.dropped, hft.dropped + 1);
	return HRTIMER_RESTART;
}

static bool is_valid(const struct hft_start *settings)
{
	return settings->variant < HFT_VARIANTS && is_power_of_2(settings->size) &&
	       settings->size >= HFT_MIN_PACKET && settings->size <= HFT_MAX_PACKET &&
	       settings->interval_ns >= HFT_MIN_INTERVAL_NS &&
	       settings->interval_ns <= HFT_MAX_INTERVAL_NS && settings->cpu >= HFT_ANY_CPU &&
	       settings->cpu < (s32)nr_cpu_ids && !settings->reserved;
}

static void clear_packets(void)
{
	memset(hft.memory, 0, HFT_MAP_BYTES);
	memset(hft.scattered, 0, HFT_MAP_BYTES);
	WRITE_ONCE(hft.published, 0);
	WRITE_ONCE(hft.dropped, 0);
	spin_lock_irq(&hft.lock);
	WRITE_ONCE(hft.unread, false);
	spin_unlock_irq(&hft.lock);
}

static void start_timer_here(void *unused)
{
	hrtimer_start(&hft.timer, ns_to_ktime(hft.settings.interval_ns), HRTIMER_MODE_REL_PINNED);
}

static int start_timer(void)
{
	if (hft.settings.cpu != HFT_ANY_CPU)
		return smp_call_function_single(hft.settings.cpu, start_timer_here, NULL, true);
	hrtimer_start(&hft.timer, ns_to_ktime(hft.settings.interval_ns), HRTIMER_MODE_REL);
	return 0;
}

static int hft_start(struct file *file, const struct hft_start __user *from)
{
	struct hft_start settings;
	int err;

	if (copy_from_user(&settings, from, sizeof(settings)))
		return -EFAULT;
	settings.size = settings.size ?: HFT_MIN_PACKET;
	settings.interval_ns = settings.interval_ns ?: HFT_DEFAULT_INTERVAL_NS;
	if (!is_valid(&settings))
		return -EINVAL;
	if (mutex_lock_interruptible(&hft.control))
		return -ERESTARTSYS;
	err = -EBUSY;
	if (!hft.owner) {
		hft.settings = settings;
		clear_packets();
		err = start_timer();
		if (!err)
			hft.owner = file;
	}
	mutex_unlock(&hft.control);
	return err;
}

static void stop(void)
{
	hrtimer_cancel(&hft.timer);
	hft.owner = NULL;
}

static int hft_stop(void)
{
	if (mutex_lock_interruptible(&hft.control))
		return -ERESTARTSYS;
	stop();
	mutex_unlock(&hft.control);
	return 0;
}

static int hft_stats(struct hft_stats __user *to)
{
	struct hft_stats stats = {
		.published = READ_ONCE(hft.published),
		.dropped = READ_ONCE(hft.dropped),
	};

	return copy_to_user(to, &stats, sizeof(stats)) ? -EFAULT : 0;
}

static long hft_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	void __user *user = (void __user *)argument;

	switch (command) {
	case HFT_NULL:
		return 0;
	case HFT_START:
		return hft_start(file, user);
	case HFT_STOP:
		return hft_stop();
	case HFT_STATS:
		return hft_stats(user);
	default:
		return -ENOTTY;
	}
}

/* Returns the size of the unread packet, 0 if there is none. */
static ssize_t take_newest(struct hft_packet *to, size_t length)
{
	ssize_t size = 0;

	spin_lock_irq(&hft.lock);
	if (hft.unread) {
		size = hft.newest.size;
		if (size > length) {
			size = -EINVAL;
		} else {
			memcpy(to, &hft.newest, size);
			WRITE_ONCE(hft.unread, false);
		}
	}
	spin_unlock_irq(&hft.lock);
	return size;
}

static ssize_t hft_read(struct file *file, char __user *to, size_t length, loff_t *position)
{
	struct hft_packet packet;
	ssize_t size;

	if (length < HFT_MIN_PACKET)
		return -EINVAL;
	/* Another reader may take the packet first. */
	do {
		if (wait_event_interruptible(hft.queue, READ_ONCE(hft.unread)))
			return -ERESTARTSYS;
		size = take_newest(&packet, length);
	} while (!size);
	if (size > 0 && copy_to_user(to, &packet, size))
		return -EFAULT;
	return size;
}

static int hft_mmap(struct file *file, struct vm_area_struct *vma)
{
	unsigned long bytes = PAGE_ALIGN(HFT_MAP_BYTES);

	if (vma->vm_end - vma->vm_start != bytes || !(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	if (vma->vm_pgoff == bytes >> PAGE_SHIFT)
		return remap_vmalloc_range(vma, hft.scattered, 0);
	if (vma->vm_pgoff)
		return -EINVAL;
	return remap_pfn_range(vma, vma->vm_start, page_to_pfn(hft.pages), bytes,
			       vma->vm_page_prot);
}

static int hft_release(struct inode *inode, struct file *file)
{
	mutex_lock(&hft.control);
	if (hft.owner == file)
		stop();
	mutex_unlock(&hft.control);
	return 0;
}

static const struct file_operations hft_fops = {
	.owner = THIS_MODULE,
	.open = stream_open,
	.release = hft_release,
	.read = hft_read,
	.mmap = hft_mmap,
	.unlocked_ioctl = hft_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice hft_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "hft",
	.mode = 0600,
	.fops = &hft_fops,
};

static void free_memory(void)
{
	if (hft.pages)
		__free_pages(hft.pages, get_order(HFT_MAP_BYTES));
	vfree(hft.scattered);
}

static int __init hft_init(void)
{
	int err;

	mutex_init(&hft.control);
	spin_lock_init(&hft.lock);
	init_waitqueue_head(&hft.queue);
	hrtimer_setup(&hft.timer, simulate, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	hft.pages = alloc_pages(GFP_KERNEL | __GFP_ZERO, get_order(HFT_MAP_BYTES));
	hft.scattered = vmalloc_user(HFT_MAP_BYTES);
	err = -ENOMEM;
	if (!hft.pages || !hft.scattered)
		goto free;
	hft.memory = page_address(hft.pages);
	err = misc_register(&hft_device);
	if (err)
		goto free;
	return 0;
free:
	free_memory();
	return err;
}

/* No file is open, so the simulator is stopped and nothing is mapped. */
static void __exit hft_exit(void)
{
	misc_deregister(&hft_device);
	free_memory();
}

module_init(hft_init);
module_exit(hft_exit);

MODULE_DESCRIPTION("A simulator of packets with three ways of publishing, for comparison only");
MODULE_AUTHOR("The Sluice developers");
MODULE_LICENSE("GPL");
