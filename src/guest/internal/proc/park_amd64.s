#include "textflag.h"

// func clone(flags uintptr, memory *lot, first *step) (pid int)
//
// The child never returns: it runs steps until one fails. It has no stack of its own and touches none.
TEXT ·clone(SB), NOSPLIT, $0-32
	MOVQ flags+0(FP), DI
	MOVQ $0, SI
	MOVQ memory+8(FP), R13
	MOVQ R13, DX
	MOVQ R13, R10
	MOVQ $0, R8
	MOVQ first+16(FP), R12
	MOVQ $56, AX           // clone
	SYSCALL
	TESTQ AX, AX
	JZ   next
	MOVQ AX, pid+24(FP)
	RET
next:
	MOVQ 0(R12), AX
	MOVQ 16(R12), DI
	MOVQ 24(R12), SI
	MOVQ 32(R12), DX
	MOVQ 40(R12), R10
	MOVQ 48(R12), R8
	MOVQ 56(R12), R9
	SYSCALL
	CMPQ AX, 8(R12)
	JLT  failed
	ADDQ $64, R12
	JMP  next
failed:
	MOVQ AX, 8(R13)
	MOVQ $231, AX          // exit_group
	MOVQ $253, DI
	SYSCALL
	JMP  failed
