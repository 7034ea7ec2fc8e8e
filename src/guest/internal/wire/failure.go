package wire

import "fmt"

// Fail is an error that the host gets as a Failure with this code.
func Fail(code ErrorCode, format string, arguments ...any) error {
	return &Failure{Type: TypeFailure, Code: code, Message: fmt.Sprintf(format, arguments...)}
}

func (f *Failure) Error() string { return f.Message }
