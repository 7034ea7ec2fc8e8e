package confine

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

// setLimits sets soft and hard limit alike, so that a program cannot raise them again. A hard limit that
// is lower already stays: it is at least as strict, and only root could raise it.
func setLimits(limits wire.GuestLimits) error {
	none := int64(0)
	for _, limit := range []struct {
		name     string
		resource int
		value    *int64
	}{
		{"core", unix.RLIMIT_CORE, &none}, // a core file would hold what the program had in memory
		{"open_files", unix.RLIMIT_NOFILE, limits.OpenFiles},
		{"file_bytes", unix.RLIMIT_FSIZE, limits.FileBytes},
		{"processes", unix.RLIMIT_NPROC, limits.Processes},
		{"data_bytes", unix.RLIMIT_DATA, limits.DataBytes},
		{"cpu_seconds", unix.RLIMIT_CPU, limits.CPUSeconds},
	} {
		if limit.value == nil {
			continue
		}
		if *limit.value < 0 {
			return fmt.Errorf("the limit %s may not be negative, as %d is", limit.name, *limit.value)
		}
		var now syscall.Rlimit
		if err := syscall.Getrlimit(limit.resource, &now); err != nil {
			return fmt.Errorf("the limit %s cannot be read: %w", limit.name, err)
		}
		value := min(uint64(*limit.value), now.Max)
		// by package syscall: only then does Go's runtime not give the open files of before to children
		if err := syscall.Setrlimit(limit.resource, &syscall.Rlimit{Cur: value, Max: value}); err != nil {
			return fmt.Errorf("the limit %s cannot be set to %d: %w", limit.name, value, err)
		}
	}
	return nil
}
