// SPDX-License-Identifier: GPL-2.0-only
//! Which acceleration really works here: found by booting, as /dev/kvm may exist and run nothing.
