package confine

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// program is a classic BPF program while it is written: jumps go forward, to labels.
type program struct {
	code   []unix.SockFilter
	jumps  map[int]string
	labels map[string]int
}

func (p *program) add(code uint16, value uint32) {
	p.code = append(p.code, unix.SockFilter{Code: code, K: value})
}

func (p *program) addJump(condition uint16, value uint32, to string) {
	if p.jumps == nil {
		p.jumps = map[int]string{}
	}
	p.jumps[len(p.code)] = to
	p.add(unix.BPF_JMP|condition|unix.BPF_K, value)
}

// load takes 32 bits of seccomp_data for the comparisons that follow.
func (p *program) load(offset uint32) { p.add(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset) }

// answer ends the program.
func (p *program) answer(action uint32) { p.add(unix.BPF_RET|unix.BPF_K, action) }

func (p *program) ifEqual(value uint32, to string)   { p.addJump(unix.BPF_JEQ, value, to) }
func (p *program) ifAtLeast(value uint32, to string) { p.addJump(unix.BPF_JGE, value, to) }
func (p *program) ifAnyBit(bits uint32, to string)   { p.addJump(unix.BPF_JSET, bits, to) }
func (p *program) jump(to string)                    { p.addJump(unix.BPF_JA, 0, to) }

func (p *program) label(name string) {
	if p.labels == nil {
		p.labels = map[string]int{}
	}
	p.labels[name] = len(p.code)
}

// assemble puts distances in the place of labels.
func (p *program) assemble() ([]unix.SockFilter, error) {
	for at, name := range p.jumps {
		target, ok := p.labels[name]
		distance := target - at - 1
		if !ok || distance < 0 || distance > 255 {
			return nil, fmt.Errorf("the filter's jump %d to %q cannot be made: the distance is %d", at, name, distance)
		}
		if p.code[at].Code == unix.BPF_JMP|unix.BPF_JA|unix.BPF_K {
			p.code[at].K = uint32(distance)
		} else {
			p.code[at].Jt = uint8(distance)
		}
	}
	return p.code, nil
}
