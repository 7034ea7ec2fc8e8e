// Package slots bounds how many goroutines are in system calls at once. Each holds a thread, and a guest that needs a
// thread more than it has dies at the sandbox's process limit, where a fork bomb can hold it.
package slots

// Fewer than the threads that the guest makes at its start: others are needed besides.
var slots = make(chan struct{}, 12)

// Enter waits for a slot. Whoever has one waits for nothing but the kernel before it leaves.
func Enter() { slots <- struct{}{} }

// Leave gives the slot back.
func Leave() { <-slots }
