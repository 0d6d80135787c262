/* SPDX-License-Identifier: GPL-2.0-only */
/* Every policy header, for the Rust bindings. */
#include "credit.h"
#include "deboost.h"
#include "forfeit.h"
#include "handoff.h"
#include "lca.h"
#include "math.h"
#include "proportional.h"
#include "ratelimit.h"
#include "strict.h"
#include "types.h"
#include "vtime.h"
#include "weight.h"
