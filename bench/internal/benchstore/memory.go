package benchstore

import (
	"os"
	"strconv"
	"strings"
)

// Memory is this process's memory in bytes, as the kernel reports it; zero if it doesn't.
type Memory struct {
	Resident int64 `json:"resident_bytes"`
	// Peak is the largest Resident so far.
	Peak int64 `json:"peak_resident_bytes"`
}

// readMemory reads /proc/self/status, which Linux has.
func readMemory() Memory {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return Memory{}
	}
	return parseStatus(string(text))
}

func parseStatus(text string) Memory {
	var m Memory
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		if len(fields) != 2 || fields[1] != "kB" {
			continue
		}
		kb, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			continue
		}
		switch name {
		case "VmRSS":
			m.Resident = kb << 10
		case "VmHWM":
			m.Peak = kb << 10
		}
	}
	return m
}
