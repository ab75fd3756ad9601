// SPDX-License-Identifier: GPL-2.0
/*
 * The kernel exports no function that sends an NMI to another processor, so this writes to the
 * local APIC itself. Only for tests in a VM.
 */
#include <linux/atomic.h>
#include <linux/errno.h>
#include <linux/irqflags.h>
#include <linux/ktime.h>
#include <linux/processor.h>

#include "nmi.h"

#ifdef CONFIG_X86

#include <asm/apic.h>
#include <asm/microcode.h>	/* cpuid_ebx(), which is in asm/processor.h of older kernels */
#include <asm/msr.h>
#include <asm/nmi.h>
#include <asm/processor.h>

#define NAME "sluice_publisher"
#define X2APIC_MSR(reg) (0x800 + ((reg) >> 4))
#define TIMEOUT_MS 5000

static void (*called)(void);
static atomic_t pending;	/* an NMI was sent, whose handler has not begun */
static atomic_t returned;	/* calls of the function that are complete */

/* NMIs of other senders are left to other handlers. */
static int handle_nmi(unsigned int type, struct pt_regs *regs)
{
	if (atomic_cmpxchg(&pending, 1, 0) != 1)
		return NMI_DONE;
	called();
	atomic_inc(&returned);
	return NMI_HANDLED;
}

int nmi_init(void (*function)(void))
{
	called = function;
	return register_nmi_handler(NMI_LOCAL, handle_nmi, 0, NAME);
}

void nmi_exit(void)
{
	unregister_nmi_handler(NMI_LOCAL, NAME);
}

unsigned int nmi_own_id(void)
{
	return cpuid_ebx(1) >> 24;
}

static bool has_x2apic(void)
{
	u32 low, high __maybe_unused;

	rdmsr(MSR_IA32_APICBASE, low, high);
	return low & X2APIC_ENABLE;
}

static void send_nmi(unsigned int id)
{
	unsigned long flags;

	if (has_x2apic()) {
		wrmsr(X2APIC_MSR(APIC_ICR), APIC_DM_NMI, id);
		return;
	}
	local_irq_save(flags);
	native_apic_mem_write(APIC_ICR2, id << 24);
	native_apic_mem_write(APIC_ICR, APIC_DM_NMI);
	local_irq_restore(flags);
}

int nmi_call(unsigned int id)
{
	ktime_t limit = ktime_add_ms(ktime_get(), TIMEOUT_MS);
	int before = atomic_read(&returned);

	atomic_set(&pending, 1);
	send_nmi(id);
	while (atomic_read(&returned) == before) {
		if (ktime_after(ktime_get(), limit))
			return -ETIMEDOUT;
		cpu_relax();
	}
	return 0;
}

#else

int nmi_init(void (*function)(void))
{
	return -EOPNOTSUPP;
}

void nmi_exit(void)
{
}

unsigned int nmi_own_id(void)
{
	return 0;
}

int nmi_call(unsigned int id)
{
	return -EOPNOTSUPP;
}

#endif
