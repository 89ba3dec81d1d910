package pgtest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// children are the processes that a process has started.
func children(pid int) []int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	var list []int
	for f := range strings.FieldsSeq(string(b)) {
		if p, err := strconv.Atoi(f); err == nil {
			list = append(list, p)
		}
	}
	return list
}
