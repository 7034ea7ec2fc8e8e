package fence

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernel is a netlink socket to the routes of this network namespace.
type kernel struct{ fd int }

func dialKernel() (kernel, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return kernel{}, fmt.Errorf("netlink: %w", err)
	}
	return kernel{fd}, unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

func (k kernel) close() { _ = unix.Close(k.fd) }

// add puts a route there, or in the place of one to the same addresses, and waits for the kernel's word.
func (k kernel) add(one route) error {
	if err := unix.Sendto(k.fd, one.message(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(k.fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return fmt.Errorf("the kernel's answer of %d bytes is none", n)
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

func (r route) message() []byte {
	about := unix.RtMsg{
		Family: unix.AF_INET, Dst_len: uint8(r.to.Bits()), Table: unix.RT_TABLE_MAIN,
		Protocol: unix.RTPROT_STATIC, Scope: unix.RT_SCOPE_UNIVERSE, Type: unix.RTN_UNICAST,
	}
	if r.to.Addr().Is6() {
		about.Family = unix.AF_INET6
	}
	var attributes []byte
	attributes = attribute(attributes, unix.RTA_DST, r.to.Masked().Addr().AsSlice())
	switch {
	case r.device == 0:
		about.Type = unix.RTN_PROHIBIT // programs are told: permission denied
	case r.gateway.IsValid():
		// The gateway itself may be closed: packets go by it, and not to it.
		about.Flags = unix.RTNH_F_ONLINK
		attributes = attribute(attributes, unix.RTA_GATEWAY, r.gateway.AsSlice())
	default:
		about.Scope = unix.RT_SCOPE_LINK
	}
	if r.device != 0 {
		attributes = attribute(attributes, unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(r.device)))
	}
	size := unix.SizeofNlMsghdr + unix.SizeofRtMsg + len(attributes)
	head := unix.NlMsghdr{
		Len: uint32(size), Type: unix.RTM_NEWROUTE,
		Flags: unix.NLM_F_REQUEST | unix.NLM_F_ACK | unix.NLM_F_CREATE | unix.NLM_F_REPLACE,
	}
	text := append([]byte{}, unsafe.Slice((*byte)(unsafe.Pointer(&head)), unix.SizeofNlMsghdr)...)
	text = append(text, unsafe.Slice((*byte)(unsafe.Pointer(&about)), unix.SizeofRtMsg)...)
	return append(text, attributes...)
}

func attribute(to []byte, kind uint16, value []byte) []byte {
	to = binary.NativeEndian.AppendUint16(to, uint16(unix.SizeofRtAttr+len(value)))
	to = append(binary.NativeEndian.AppendUint16(to, kind), value...)
	for len(to)%unix.RTA_ALIGNTO != 0 {
		to = append(to, 0)
	}
	return to
}

// gateway is where the default route through a device goes.
func gateway(device string, six bool) (found netip.Addr, there bool, err error) {
	file, width := "/proc/net/route", 8
	if six {
		file, width = "/proc/net/ipv6_route", 32
	}
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return found, false, nil
	}
	if err != nil {
		return found, false, err
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		var target, next, bits string
		switch {
		case six && len(words) == 10 && words[9] == device:
			target, bits, next = words[0], words[1], words[4]
		case !six && len(words) >= 8 && words[0] == device:
			target, next, bits = words[1], words[2], words[7]
		default:
			continue
		}
		if strings.Trim(target, "0") != "" || strings.Trim(bits, "0") != "" || len(next) != width {
			continue
		}
		if found, err = address(next, six); err != nil {
			return found, false, err
		}
		if !found.IsUnspecified() {
			return found, true, nil
		}
	}
	return found, false, nil
}

// address reads one as the kernel writes it: IPv4 as a number in the machine's own order.
func address(text string, six bool) (netip.Addr, error) {
	if six {
		raw, err := hex.DecodeString(text)
		if err != nil {
			return netip.Addr{}, err
		}
		return netip.AddrFrom16([16]byte(raw)), nil
	}
	number, err := strconv.ParseUint(text, 16, 32)
	if err != nil {
		return netip.Addr{}, err
	}
	return netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, uint32(number)))), nil
}
