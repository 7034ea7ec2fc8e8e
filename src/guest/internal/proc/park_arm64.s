#include "textflag.h"

// func clone(flags uintptr, memory *lot, first *step) (pid int)
//
// The child never returns: it runs steps until one fails. It has no stack of its own and touches none.
TEXT ·clone(SB), NOSPLIT, $0-32
	MOVD flags+0(FP), R0
	MOVD $0, R1
	MOVD memory+8(FP), R20
	MOVD R20, R2
	MOVD $0, R3
	MOVD R20, R4
	MOVD first+16(FP), R19
	MOVD $220, R8          // clone
	SVC
	CBZ  R0, next
	MOVD R0, pid+24(FP)
	RET
next:
	MOVD 0(R19), R8
	MOVD 8(R19), R21
	MOVD 16(R19), R0
	MOVD 24(R19), R1
	MOVD 32(R19), R2
	MOVD 40(R19), R3
	MOVD 48(R19), R4
	MOVD 56(R19), R5
	SVC
	CMP  R21, R0
	BLT  failed
	ADD  $64, R19
	B    next
failed:
	MOVD R0, 8(R20)
	MOVD $94, R8           // exit_group
	MOVD $253, R0
	SVC
	B    failed
