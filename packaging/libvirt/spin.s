# SPDX-License-Identifier: GPL-2.0-only
# A guest that is nothing but firmware, and keeps all of its vCPUs busy: 64 KiB that end where the memory that x86 begins in
# does. Assembled by packaging/libvirt/try.
	.code16
# Real mode, no memory. All begin here: the first by reset, the others as the first tells them to.
begin:
	# IA32_APIC_BASE: the first has bit 8. It turns on its x2APIC, which is told by MSRs.
	mov $0x1b, %ecx
	rdmsr
	bt $8, %eax
	jnc spin
	or $0xc00, %eax
	wrmsr
	# To all but itself: INIT, and after a while SIPI with vector 0xf0, which is f000:0000.
	mov $0x830, %ecx
	xor %edx, %edx
	mov $0xc4500, %eax
	wrmsr
	mov $0x10000, %ebx
wait:
	dec %ebx
	jnz wait
	mov $0xc46f0, %eax
	wrmsr
spin:
	# An emulated CPU gives its turn away here, and the machine is the faster for it.
	pause
	jmp spin

	# Where a CPU begins after a reset.
	.org 0xfff0
	jmp begin
	.org 0x10000
