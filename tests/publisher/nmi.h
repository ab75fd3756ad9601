/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Functions in NMI context, for tests.
 *
 * Life: between nmi_init() and nmi_exit() a handler of local NMIs is registered. Only one
 * nmi_call() at a time.
 */
#ifndef PUBLISHER_NMI_H
#define PUBLISHER_NMI_H

/* Before the first nmi_call(). 0 or an error; -EOPNOTSUPP: this architecture is not supported. */
int nmi_init(void (*function)(void));
void nmi_exit(void);

/* The identity of the calling processor, for nmi_call(). */
unsigned int nmi_own_id(void);

/* Calls the function in an NMI of another processor and waits until it has run. 0 or -ETIMEDOUT. */
int nmi_call(unsigned int id);

#endif
