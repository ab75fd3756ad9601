/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What gcc 12 counts with -fprofile-arcs, as in libgcov.h of gcc. With
 * -fprofile-info-section=gcov_info the section gcov_info of the module has a pointer to a
 * struct gcov_info for each object.
 */
#ifndef SLUICE_GCOV_H
#define SLUICE_GCOV_H

#include <linux/types.h>

#if __GNUC__ != 12
#error "the structures are those of gcc 12"
#endif

#define GCOV_COUNTERS 8

struct gcov_info;

struct gcov_ctr_info {
	unsigned int num;
	s64 *values;
};

struct gcov_fn_info {
	const struct gcov_info *key;
	unsigned int ident;
	unsigned int lineno_checksum;
	unsigned int cfg_checksum;
	struct gcov_ctr_info arcs;
};

struct gcov_info {
	unsigned int version;
	struct gcov_info *next;
	unsigned int stamp;
	unsigned int checksum;
	const char *filename;
	void *merge[GCOV_COUNTERS];
	unsigned int n_functions;
	const struct gcov_fn_info *const *functions;
};

void __gcov_merge_add(s64 *values, unsigned int num);

#endif
