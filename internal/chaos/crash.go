//go:build linux

package chaos

import "strings"

// crashMarks begin the output of a Go program that crashes.
var crashMarks = []string{"panic: ", "fatal error: ", "WARNING: DATA RACE"}

// crashes is the output of the crashes of a program. If disks fail, a library may end the
// program by a panic with the error of the system; that doesn't count as a crash.
func crashes(log string, disksFail bool) (found []string) {
	var words []string
	add := func() {
		if text := strings.Join(words, ""); text != "" && !(disksFail && endedByDisk(text)) {
			found = append(found, text)
		}
		words = nil
	}
	for line := range strings.Lines(log) {
		marked := false
		for _, mark := range crashMarks {
			marked = marked || strings.HasPrefix(strings.TrimSpace(line), mark)
		}
		switch {
		case strings.HasPrefix(line, "{"), strings.HasPrefix(line, "semel: "): // it was started again
			add()
		case (marked || len(words) > 0) && len(words) < 20:
			words = append(words, line)
		}
	}
	add()
	return found
}

// endedByDisk reports whether these are the last words of a program whose disk failed:
// an error of the system, or Pebble's where it could not begin a log.
func endedByDisk(words string) bool {
	return strings.Contains(words, "panic: syscall.Errno(") || strings.Contains(words, "pebble/v2.(*DB).rotateWAL(")
}
