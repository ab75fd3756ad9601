// SPDX-License-Identifier: GPL-2.0
/* The last object of the module sluice: the end of the list of what gcc counts in it. */
#include <linux/compiler.h>

#include "gcov.h"

static const struct gcov_info *end __section("gcov_info") __used;
