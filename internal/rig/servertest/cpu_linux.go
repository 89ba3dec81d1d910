package servertest

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// CPU is the processor time that the running processes of the server have used so far, by all
// their threads. Processes that have ended don't count.
func (p *Process) CPU() (sum time.Duration) {
	pid := p.now.PID()
	for _, p := range append(children(pid), pid) {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p))
		for _, file := range threads {
			var used time.Duration
			if text, err := os.ReadFile(file); err == nil { // or it has just ended
				_, _ = fmt.Sscan(string(text), &used)
			}
			sum += used
		}
	}
	return sum
}
