// SPDX-License-Identifier: GPL-2.0
/*
 * The first object of the module sluice: where the list of what gcc counts in it begins. The module
 * sluice_gcov finds it as the argument of a parameter, which nobody sets.
 */
#include <linux/moduleparam.h>

#include "gcov.h"

static const struct gcov_info *infos[] __section("gcov_info") = {};
static const struct kernel_param_ops unset;
module_param_cb(gcov_infos, &unset, infos, 0);
