package proc

import (
	"errors"
	"os"
	"os/user"
	"path"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"holdfast/guest/internal/wire"
)

const (
	// The kernel's limit on one argument or one variable (32 pages), and ours on both together.
	maxArgumentBytes = 131072 - 1
	maxCommandBytes  = 2 << 20
	// A cap beyond this would let a tenant fill the guest's memory.
	maxCapBytes = 64 << 20
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// isVariable: letters, digits and _, not a digit first. By hand: each exec asks for each of its variables.
func isVariable(name string) bool {
	for at, char := range []byte(name) {
		letter := char == '_' || 'a' <= char|0x20 && char|0x20 <= 'z'
		if !letter && (at == 0 || char < '0' || char > '9') {
			return false
		}
	}
	return name != ""
}

// prepare checks a request and resolves it to a job, so that each mistake has its own answer:
// the kernel's one errno for a missing program and a missing folder would not tell them apart.
func prepare(request wire.ExecRequest, config wire.GuestConfig) (job, error) {
	if request.StdoutCapBytes < 0 || request.StderrCapBytes < 0 || request.StdoutCapBytes > maxCapBytes || request.StderrCapBytes > maxCapBytes {
		return job{}, wire.Fail(wire.ErrorCodeInvalidRequest, "output caps must lie between 0 and %d bytes", maxCapBytes)
	}
	argv, err := arguments(request)
	if err != nil {
		return job{}, err
	}
	environment, searchPath, err := environment(config.Env, request.Env)
	if err != nil {
		return job{}, err
	}
	cwd, err := folder(request.Cwd, config.Workspace)
	if err != nil {
		return job{}, err
	}
	program, err := lookUp(argv[0], searchPath, cwd)
	if err != nil {
		return job{}, err
	}
	credential, err := credential(request.User)
	if err != nil {
		return job{}, err
	}
	return job{
		Path:       program,
		Argv:       argv,
		Env:        environment,
		Cwd:        cwd,
		Credential: credential,
		Keep:       request.Background == wire.BackgroundKeep,
	}, nil
}

func arguments(request wire.ExecRequest) ([]string, error) {
	argv := request.Argv
	switch {
	case request.Shell != nil && argv != nil:
		return nil, wire.Fail(wire.ErrorCodeInvalidRequest, "give either a list of arguments or a shell line, not both")
	case request.Shell != nil:
		argv = []string{"sh", "-c", *request.Shell}
	case len(argv) == 0 || argv[0] == "":
		return nil, wire.Fail(wire.ErrorCodeInvalidRequest, "the command is empty")
	}
	out := make([]string, len(argv))
	total := 0
	for index, argument := range argv {
		text, err := wire.FromWire(argument)
		if err != nil {
			return nil, wire.Fail(wire.ErrorCodeInvalidRequest, "argument %d contains a NUL byte", index)
		}
		if total += len(text) + 1; len(text) > maxArgumentBytes || total > maxCommandBytes {
			return nil, wire.Fail(wire.ErrorCodeArgumentTooLong,
				"argument %d is too long (%d bytes; Linux takes %d): write it to a file or send it as stdin", index, len(text), maxArgumentBytes)
		}
		out[index] = text
	}
	return out, nil
}

func environment(base, extra map[string]string) (list []string, searchPath string, err error) {
	merged := make(map[string]string, len(base)+len(extra))
	for _, variables := range []map[string]string{base, extra} {
		for name, value := range variables {
			if !isVariable(name) {
				return nil, "", wire.Fail(wire.ErrorCodeInvalidRequest, "%q is not the name of an environment variable", name)
			}
			if merged[name], err = wire.FromWire(value); err != nil {
				return nil, "", wire.Fail(wire.ErrorCodeInvalidRequest, "the value of %s contains a NUL byte", name)
			}
		}
	}
	total := 0
	for name, value := range merged {
		if total += len(name) + len(value) + 2; len(name)+len(value)+2 > maxArgumentBytes || total > maxCommandBytes {
			return nil, "", wire.Fail(wire.ErrorCodeArgumentTooLong, "the environment is too large at %s: pass big values in a file", name)
		}
		list = append(list, name+"="+value)
	}
	searchPath, given := merged["PATH"]
	if !given {
		searchPath = defaultPath
	}
	return list, searchPath, nil
}

func folder(asked *string, workspace string) (string, error) {
	if asked == nil {
		return workspace, nil
	}
	text, err := wire.FromWire(*asked)
	if err != nil || text == "" {
		return "", wire.Fail(wire.ErrorCodeInvalidRequest, "the working directory is empty or contains a NUL byte")
	}
	if !path.IsAbs(text) {
		text = path.Join(workspace, text)
	}
	text = path.Clean(text)
	for _, kernel := range []string{"/proc", "/sys", "/dev"} {
		if text == kernel || strings.HasPrefix(text, kernel+"/") {
			return "", wire.Fail(wire.ErrorCodePathNotAllowed, "%s cannot be a working directory; use one beneath %s", *asked, workspace)
		}
	}
	info, err := os.Stat(text)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", wire.Fail(wire.ErrorCodeCwdNotFound, "the working directory %s does not exist; make it first", *asked)
	case errors.Is(err, syscall.ENAMETOOLONG):
		return "", wire.Fail(wire.ErrorCodeNameTooLong, "the working directory's name is too long")
	case errors.Is(err, syscall.ENOTDIR) || err == nil && !info.IsDir():
		return "", wire.Fail(wire.ErrorCodeCwdNotADirectory, "%s is not a directory", *asked)
	case err != nil || unix.Access(text, unix.X_OK) != nil:
		return "", wire.Fail(wire.ErrorCodePermissionDenied, "the working directory %s cannot be entered", *asked)
	}
	return text, nil
}

func lookUp(name, searchPath, cwd string) (string, error) {
	if strings.ContainsRune(name, '/') {
		if !path.IsAbs(name) {
			name = path.Join(cwd, name)
		}
		return name, nil // the kernel looks at it; if it refuses, startFailure says why
	}
	var refused error
	for _, entry := range strings.Split(searchPath, ":") {
		if !path.IsAbs(entry) {
			entry = path.Join(cwd, entry)
		}
		candidate := path.Join(entry, name)
		err := executable(candidate)
		if err == nil {
			return candidate, nil
		}
		if failure := (*wire.Failure)(nil); refused == nil && errors.As(err, &failure) && failure.Code == wire.ErrorCodeNotExecutable {
			refused = err
		}
	}
	if refused != nil {
		return "", refused
	}
	return "", wire.Fail(wire.ErrorCodeCommandNotFound, "%s is not in this sandbox's PATH (%s)", name, searchPath)
}

func executable(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return wire.Fail(wire.ErrorCodeCommandNotFound, "%s does not exist in this sandbox", file)
	}
	if info.IsDir() || unix.Access(file, unix.X_OK) != nil {
		return wire.Fail(wire.ErrorCodeNotExecutable, "%s is not executable: `chmod +x` it or name its interpreter", file)
	}
	return nil
}

// credential resolves a user; nil stays who we are.
func credential(asked *string) (*syscall.Credential, error) {
	if asked == nil {
		return nil, nil
	}
	name, group, _ := strings.Cut(*asked, ":")
	uid, err := strconv.ParseUint(name, 10, 32)
	gid := uid
	if err != nil {
		found, err := user.Lookup(name)
		if err != nil {
			return nil, wire.Fail(wire.ErrorCodeUserUnknown, "there is no user %q in this sandbox", *asked)
		}
		uid, _ = strconv.ParseUint(found.Uid, 10, 32)
		gid, _ = strconv.ParseUint(found.Gid, 10, 32)
	}
	if group != "" {
		if gid, err = strconv.ParseUint(group, 10, 32); err != nil {
			return nil, wire.Fail(wire.ErrorCodeUserUnknown, "%q is not a group's number", group)
		}
	}
	if int(uid) == os.Getuid() && int(gid) == os.Getgid() {
		return nil, nil
	}
	if !CanSwitchUser() {
		return nil, wire.Fail(wire.ErrorCodeUserNotAvailable, "this sandbox runs everything as uid %d and cannot start a program as %q", os.Getuid(), *asked)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// CanSwitchUser says whether programs may be started as somebody else, and still be killed.
func CanSwitchUser() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return false
	}
	needed := uint32(1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL)
	return data[0].Effective&needed == needed
}
