package archtest

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// servedDoor finds the imports of doors.
var servedDoor = regexp.MustCompile(`"` + regexp.QuoteMeta(modulePath) + `/(door/[a-z/0-9]+)"`)

// notDoors are packages that doors share. The middleware and the proxy are what routes are
// made of, wherever the service handles one.
var notDoors = map[string]bool{"door/inbox": true, "door/judge": true, "door/semelhttp": true, "door/semelproxy": true, "door/activitypub/httpsig": true}

// mountFaults finds doors that the service or its configuration knows in more than one file.
// A new door touches its package, a file and a line in package service, and a file and a line
// in package config; everything else is a loop over doors.
func mountFaults(files map[string]string) []string {
	known := map[string][]string{} // files by room and door
	for _, name := range slices.Sorted(maps.Keys(files)) {
		room := path.Dir(name)
		if room != "internal/service" && room != "internal/service/config" || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		var doors []string
		for _, m := range servedDoor.FindAllStringSubmatch(files[name], -1) {
			if !notDoors[m[1]] {
				doors = append(doors, m[1])
			}
		}
		// A door in front of another one has both.
		doors = slices.DeleteFunc(doors, func(d string) bool {
			return slices.ContainsFunc(doors, func(other string) bool { return strings.HasPrefix(other, d+"/") })
		})
		if len(doors) > 1 {
			known[room] = append(known[room], name)
		}
		for _, d := range doors {
			known[room+" "+d] = append(known[room+" "+d], name)
		}
	}
	var faults []string
	for _, of := range slices.Sorted(maps.Keys(known)) {
		if room, door, one := strings.Cut(of, " "); !one {
			faults = append(faults, fmt.Sprintf("%s know several doors", known[of]))
		} else if len(known[of]) > 1 {
			faults = append(faults, fmt.Sprintf("%s knows %s in %s: a door has one file there", room, door, known[of]))
		}
	}
	return faults
}

func TestDoorsAreMountedInOnePlace(t *testing.T) {
	report(t, mountFaults(treeFiles(t)))
}

func TestMountRuleFinds(t *testing.T) {
	imports := func(doors ...string) string {
		var text strings.Builder
		for _, p := range doors {
			fmt.Fprintf(&text, "import %q\n", modulePath+"/door/"+p)
		}
		return text.String()
	}
	wantFaults(t, mountFaults(map[string]string{
		"internal/service/webhook.go":    imports("webhook", "inbox"),
		"internal/service/generation.go": imports("webhook"),
		"internal/service/commands.go":   imports("ids"),
		"internal/service/whatsapp.go":   imports("ids", "ids/whatsapp"),
		"internal/service/config/all.go": imports("webhook", "forrst"),
		"internal/service/x_test.go":     imports("webhook", "forrst"),
		"cmd/x.go":                       imports("webhook", "forrst"),
	}), "internal/service knows door/webhook in", "internal/service/config/all.go] know several doors")
}
