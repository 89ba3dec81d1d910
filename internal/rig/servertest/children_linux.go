package servertest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// children are the processes that a process has started.
func children(pid int) (list []int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)) // none if it has ended
	for f := range strings.FieldsSeq(string(text)) {
		if p, err := strconv.Atoi(f); err == nil {
			list = append(list, p)
		}
	}
	return list
}
