/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Entry and interrupt stubs. The VMM starts every vCPU at `ob_entry` in 64-bit mode with its stack set,
 * %rdi = vCPU index; it builds the IDT from `ob_isr_stubs`, whose stubs are 16 bytes apart.
 */
	.text
	.globl ob_entry
ob_entry:
	xorl	%ebp, %ebp
	call	guest_main
1:	hlt
	jmp	1b

	.globl ob_isr_stubs
	.balign 16
ob_isr_stubs:
	.set	vector, 0
	.rept	256
	.balign 16
	/* Exceptions 8, 10-14, 17, 21, 29, 30 push an error code; the others get a zero. */
	.if (vector == 8) || ((vector >= 10) && (vector <= 14)) || (vector == 17) || (vector == 21) || (vector == 29) || (vector == 30)
	.else
	pushq	$0
	.endif
	pushq	$vector
	jmp	isr_common
	.set	vector, vector + 1
	.endr

isr_common:
	pushq	%rax
	pushq	%rcx
	pushq	%rdx
	pushq	%rsi
	pushq	%rdi
	pushq	%r8
	pushq	%r9
	pushq	%r10
	pushq	%r11
	/* At entry to C the stack must be 16-byte aligned; the saved %rbp restores it. */
	pushq	%rbp
	movq	%rsp, %rbp
	leaq	80(%rsp), %rdi
	andq	$-16, %rsp
	cld
	call	guest_interrupt
	movq	%rbp, %rsp
	popq	%rbp
	popq	%r11
	popq	%r10
	popq	%r9
	popq	%r8
	popq	%rdi
	popq	%rsi
	popq	%rdx
	popq	%rcx
	popq	%rax
	addq	$16, %rsp
	iretq

/* void enter_user(u64 rip, u64 rsp, u64 arg): goes to ring 3 and never comes back. */
	.globl enter_user
enter_user:
	pushq	$0x1b
	pushq	%rsi
	pushq	$0x202
	pushq	$0x23
	pushq	%rdi
	movq	%rdx, %rdi
	iretq
	.section .note.GNU-stack,"",@progbits
