package stage

import (
	"context"
	"os/exec"
	"strings"
	"sync"
)

// Screen keeps what an example prints. It may be written and read concurrently.
type Screen struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements [io.Writer].
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// Text is everything that was printed so far.
func (s *Screen) Text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// Requests are the commands with curl among what was printed, each on a line of its own.
func (s *Screen) Requests() (all []string) {
	for line := range strings.Lines(s.Text()) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "curl ") {
			all = append(all, line)
		}
	}
	return all
}

// Type runs a command as a person at a terminal does, and returns what it prints.
func Type(ctx context.Context, command string) (string, error) {
	out, err := exec.CommandContext(ctx, "sh", "-c", command).CombinedOutput()
	return string(out), err
}
