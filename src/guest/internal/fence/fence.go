// Package fence closes parts of the network to a sandbox that has one: the addresses of the machine beneath it, of its
// neighbours, of a cloud's metadata. It is done by routes of the sandbox's network namespace, from outside of the sandbox
// and before anything runs in it. Nobody inside may change a route.
package fence

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
)

// plan is the argument of `guest fence`; fence.py writes it.
type plan struct {
	Deny, Allow []netip.Prefix
}

// metadata services hand out the machine's own credentials: no resolver is worth that.
var metadata = []netip.Addr{netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("fd00:ec2::254")}

// Fence puts the routes there. Of two that hold an address, the kernel takes the narrower one.
func Fence(argument string) error {
	var p plan
	if err := json.Unmarshal([]byte(argument), &p); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	found, err := look()
	if err != nil {
		return err
	}
	resolvers, err := resolvers("/etc/resolv.conf")
	if err != nil {
		return err
	}
	kernel, err := dialKernel()
	if err != nil {
		return err
	}
	defer kernel.close()
	for _, one := range found.routes(p, resolvers) {
		if err := kernel.add(one); err != nil {
			return fmt.Errorf("route to %s: %w", one.to, err)
		}
	}
	fmt.Fprintln(os.Stderr, "fenced") // the end of a stream is no success
	return nil
}

// network is what a sandbox has of it.
type network struct {
	ways  map[bool]way // by whether it is IPv6: where the default route goes; none: there is no such route
	links []link
}

// way is the next hop of packets to elsewhere.
type way struct {
	device  int
	gateway netip.Addr
}

// link is a net on a device, whose hosts are reached without a gateway.
type link struct {
	device int
	subnet netip.Prefix
}

// route is one entry for the kernel; without a device it refuses.
type route struct {
	to      netip.Prefix
	device  int
	gateway netip.Addr
}

// routes is all that is to be added: what stays open first, since it needs the ways that are then closed.
func (n network) routes(p plan, resolvers []netip.Addr) []route {
	var open, closed []route
	for _, prefix := range p.Allow {
		open = append(open, n.open(prefix)...)
	}
	for _, one := range resolvers {
		if n.near(one) == nil { // a neighbour's or the machine's: what else listens there would be open too
			open = append(open, n.open(netip.PrefixFrom(one, one.BitLen()))...)
		}
	}
	for _, prefix := range p.Deny {
		if _, there := n.ways[prefix.Addr().Is6()]; !there && !n.has(prefix.Addr().Is6()) {
			continue // a kernel without IPv6 takes no such route, and nothing of it is reached
		}
		if prefix.Bits() == 0 { // would take the place of the default route, which is needed for what stays open
			closed = append(closed, halves(prefix)...)
		} else {
			closed = append(closed, route{to: prefix})
		}
		for _, one := range n.links {
			if prefix.Overlaps(one.subnet) && prefix.Bits() <= one.subnet.Bits() {
				closed = append(closed, halves(one.subnet)...) // narrower than the net's own route
			}
		}
	}
	return append(open, without(closed, open)...)
}

// open is the way to addresses that stay open: none if they are not to be reached anyhow.
func (n network) open(prefix netip.Prefix) []route {
	if one := n.near(prefix.Addr()); one != nil && prefix.Bits() >= one.subnet.Bits() {
		return []route{{to: prefix, device: one.device}}
	}
	if to, there := n.ways[prefix.Addr().Is6()]; there && prefix.Bits() > 0 {
		return []route{{to: prefix, device: to.device, gateway: to.gateway}}
	}
	return nil
}

// near is the link of an address; nil: it is elsewhere.
func (n network) near(address netip.Addr) *link {
	for _, one := range n.links {
		if one.subnet.Contains(address) {
			return &one
		}
	}
	return nil
}

func (n network) has(six bool) bool {
	for _, one := range n.links {
		if one.subnet.Addr().Is6() == six {
			return true
		}
	}
	return false
}

// halves is a prefix in two parts.
func halves(prefix netip.Prefix) []route {
	bits := prefix.Bits() + 1
	if bits > prefix.Addr().BitLen() {
		return nil // one address: the sandbox's own
	}
	upper := prefix.Masked().Addr().AsSlice()
	upper[(bits-1)/8] |= 0x80 >> ((bits - 1) % 8)
	second, _ := netip.AddrFromSlice(upper)
	return []route{{to: netip.PrefixFrom(prefix.Masked().Addr(), bits)}, {to: netip.PrefixFrom(second, bits)}}
}

// without leaves out what is there to the letter: the operator's own word is the later one.
func without(routes, there []route) []route {
	var left []route
	for _, one := range routes {
		known := false
		for _, other := range there {
			known = known || one.to == other.to
		}
		if !known {
			left = append(left, one)
		}
	}
	return left
}

// look finds the nets and the default routes of this network namespace.
func look() (network, error) {
	found := network{ways: map[bool]way{}}
	devices, err := net.Interfaces()
	if err != nil {
		return found, err
	}
	for _, device := range devices {
		if device.Flags&net.FlagLoopback != 0 {
			continue
		}
		addresses, err := device.Addrs()
		if err != nil {
			return found, err
		}
		for _, each := range addresses {
			if subnet, err := netip.ParsePrefix(each.String()); err == nil {
				found.links = append(found.links, link{device.Index, subnet.Masked()})
			}
		}
		for _, six := range []bool{false, true} {
			gateway, there, err := gateway(device.Name, six)
			if err != nil {
				return found, err
			}
			if there {
				found.ways[six] = way{device.Index, gateway}
			}
		}
	}
	return found, nil
}

// resolvers are the name servers that programs are told to ask.
func resolvers(file string) ([]netip.Addr, error) {
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []netip.Addr
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		address, err := netip.ParseAddr(words[1])
		if err != nil || address.IsLoopback() || address.Zone() != "" || address == metadata[0] || address == metadata[1] {
			continue
		}
		found = append(found, address)
	}
	return found, nil
}
