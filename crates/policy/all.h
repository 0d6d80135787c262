/* SPDX-License-Identifier: GPL-2.0-only */
/* Every policy header, for the Rust bindings. */
#include "deboost.h"
#include "lca.h"
#include "math.h"
#include "ratelimit.h"
#include "types.h"
#include "vtime.h"
#include "weight.h"
