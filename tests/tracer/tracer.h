/* SPDX-License-Identifier: GPL-2.0 */
/* The call that the compiler inserts with -fsanitize-coverage=trace-pc. */
#ifndef SLUICE_TRACER_H
#define SLUICE_TRACER_H

void __sanitizer_cov_trace_pc(void);

#endif
