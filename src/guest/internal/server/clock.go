package server

import (
	"sync"
	"sync/atomic"
	"time"

	"holdfast/guest/internal/wire"
)

// clock ends a session by itself. It is monotonic: nobody can make a session immortal, or kill it, by setting the time.
type clock struct {
	start    time.Time
	used     atomic.Int64 // nanoseconds after start
	stopped  chan struct{}
	stopping atomic.Bool
	changed  chan struct{} // the times below were

	mu       sync.Mutex
	idle     time.Duration // 0: never
	lifetime time.Duration // 0: never
}

func newClock(config wire.GuestConfig) *clock {
	c := &clock{start: time.Now(), stopped: make(chan struct{}), changed: make(chan struct{}, 1)}
	if config.IdleTimeoutMS != nil {
		c.idle = time.Duration(*config.IdleTimeoutMS) * time.Millisecond
	}
	if config.MaxLifetimeMS != nil {
		c.lifetime = time.Duration(*config.MaxLifetimeMS) * time.Millisecond
	}
	return c
}

func (c *clock) touch() { c.used.Store(int64(time.Since(c.start))) }

func (c *clock) sinceUse() time.Duration { return time.Since(c.start) - time.Duration(c.used.Load()) }

// stop ends the session now.
func (c *clock) stop() {
	if c.stopping.CompareAndSwap(false, true) {
		close(c.stopped)
	}
}

// retire leaves the session so much time and no more, used or not.
func (c *clock) retire(left time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if end := time.Since(c.start) + left; c.lifetime == 0 || end < c.lifetime {
		c.lifetime = end
	}
	c.idle = 0
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *clock) times() (idle, lifetime time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.idle, c.lifetime
}

// wait returns when the time is over or stop was called. A running exec is not idle.
func (c *clock) wait(running func() int) {
	for {
		next := time.Hour
		idle, lifetime := c.times()
		if lifetime > 0 {
			left := lifetime - time.Since(c.start)
			if left <= 0 {
				return
			}
			next = min(next, left)
		}
		if idle > 0 {
			if running() > 0 {
				next = min(next, idle) // the end of an exec counts as use
			} else if left := idle - c.sinceUse(); left <= 0 {
				return
			} else {
				next = min(next, left)
			}
		}
		select {
		case <-c.stopped:
			return
		case <-c.changed:
		case <-time.After(next):
		}
	}
}

func (c *clock) report(into *wire.StatusReport) {
	into.UptimeMS = time.Since(c.start).Milliseconds()
	into.IdleMS = c.sinceUse().Milliseconds()
	if _, lifetime := c.times(); lifetime > 0 {
		left := max(0, (lifetime - time.Since(c.start)).Milliseconds())
		into.LifetimeLeftMS = &left
	}
}
