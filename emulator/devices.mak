# SPDX-License-Identifier: GPL-2.0-only
# Machines and devices that the lab uses.
CONFIG_I440FX=y
CONFIG_MICROVM=y
CONFIG_VIRTIO_MMIO=y
CONFIG_VIRTIO_SERIAL=y
