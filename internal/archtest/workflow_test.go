package archtest

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	allSteps = regexp.MustCompile(`(?m)^all=\(([^)]*)\)$`)
	lane     = regexp.MustCompile(`(?m)^          - ([a-z -]+)$`)
	uses     = regexp.MustCompile(`(?m)^ +- uses: (\S+)@`)
)

// workflowFaults compares the lanes of the public workflow with the steps of .ci/run. The last
// step of both looks at what the others left behind, so each lane ends with it.
func workflowFaults(run, workflow string) []string {
	m := allSteps.FindStringSubmatch(run)
	if m == nil {
		return []string{".ci/run doesn't say what all steps are"}
	}
	all := strings.Fields(m[1])
	last := all[len(all)-1]
	var faults, covered []string
	for _, found := range lane.FindAllStringSubmatch(workflow, -1) {
		steps := strings.Fields(found[1])
		if steps[len(steps)-1] != last {
			faults = append(faults, "the lane "+found[1]+" doesn't end with "+last)
		}
		for _, step := range steps {
			if !slices.Contains(all, step) {
				faults = append(faults, "the workflow has "+step+", which is no step of .ci/run")
			} else if step != last && slices.Contains(covered, step) {
				faults = append(faults, "two lanes run "+step)
			}
			covered = append(covered, step)
		}
	}
	for _, step := range all {
		if !slices.Contains(covered, step) {
			faults = append(faults, "no lane of the workflow runs "+step)
		}
	}
	return append(faults, foreignFaults(workflow)...)
}

// foreignFaults finds steps that aren't in this repository, nor of whoever runs the workflow: they
// would have our rights.
func foreignFaults(workflow string) (faults []string) {
	for _, found := range uses.FindAllStringSubmatch(workflow, -1) {
		if !strings.HasPrefix(found[1], "actions/") {
			faults = append(faults, "the workflow uses "+found[1]+", somebody else's program")
		}
	}
	return faults
}

func TestWorkflow(t *testing.T) {
	files := treeFiles(t)
	report(t, workflowFaults(files[".ci/run"], files[".github/workflows/ci.yml"]))
	for name, text := range files {
		if strings.HasPrefix(name, ".github/workflows/") {
			report(t, foreignFaults(text))
		}
	}
}

func TestWorkflowRuleFinds(t *testing.T) {
	workflow := "          - a b clean\n          - c\n          - a clean\n      - uses: actions/checkout@v5\n      - uses: x/y@v1\n"
	wantFaults(t, workflowFaults("all=(a b d clean)\n", workflow),
		"the lane c doesn't end with clean", "has c, which is no step", "two lanes run a", "no lane of the workflow runs d", "uses x/y")
	wantFaults(t, workflowFaults("", workflow), "doesn't say")
}
