package server

import (
	"sync/atomic"
	"time"

	"holdfast/guest/internal/wire"
)

// clock ends a session by itself. It is monotonic: nobody can make a session immortal, or kill it, by setting the time.
type clock struct {
	start    time.Time
	idle     time.Duration // 0: never
	lifetime time.Duration // 0: never
	used     atomic.Int64  // nanoseconds after start
	stopped  chan struct{}
	stopping atomic.Bool
}

func newClock(config wire.GuestConfig) *clock {
	c := &clock{start: time.Now(), stopped: make(chan struct{})}
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

// wait returns when the time is over or stop was called. A running exec is not idle.
func (c *clock) wait(running func() int) {
	for {
		next := time.Hour
		if c.lifetime > 0 {
			left := c.lifetime - time.Since(c.start)
			if left <= 0 {
				return
			}
			next = min(next, left)
		}
		if c.idle > 0 {
			if running() > 0 {
				next = min(next, c.idle) // the end of an exec counts as use
			} else if left := c.idle - c.sinceUse(); left <= 0 {
				return
			} else {
				next = min(next, left)
			}
		}
		select {
		case <-c.stopped:
			return
		case <-time.After(next):
		}
	}
}

func (c *clock) report(into *wire.StatusReport) {
	into.UptimeMS = time.Since(c.start).Milliseconds()
	into.IdleMS = c.sinceUse().Milliseconds()
	if c.lifetime > 0 {
		left := max(0, (c.lifetime - time.Since(c.start)).Milliseconds())
		into.LifetimeLeftMS = &left
	}
}
