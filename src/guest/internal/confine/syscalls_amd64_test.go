package confine

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestNumbersThatOnlyX86Has(t *testing.T) {
	kernel := map[string]uint32{"modify_ldt": unix.SYS_MODIFY_LDT, "iopl": unix.SYS_IOPL, "ioperm": unix.SYS_IOPERM}
	for _, one := range denied {
		if one.arm64 == absent && one.amd64 != kernel[one.name] {
			t.Errorf("%s is %d, the table says %d", one.name, kernel[one.name], one.amd64)
		}
	}
}
