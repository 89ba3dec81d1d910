package config

import (
	"fmt"
	"iter"
	"path"
	"regexp"
	"slices"
	"strings"
)

// items are the items of a list, each with its path.
func items[T any](path string, list []T) iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		for i := range list {
			if !yield(fmt.Sprintf("%s[%d]", path, i), &list[i]) {
				return
			}
		}
	}
}

// doorSection says what a section with doors means to the rest of the configuration.
type doorSection struct {
	// derive fills in what follows from other settings. validate checks the section, and reads
	// its secrets, so that the service never starts with a bad one.
	derive   func(c *Config, origins *Origins, follows func(path, from string))
	validate func(v *validator)
	// mounts are the places of its doors.
	mounts func(c *Config) []mount
	// reserved reports whether an operation or a destination has a name of its doors' own, so
	// that nobody may declare it or begin its calls, and accepts says what they accept by it.
	// Nil: none has. destination is one with a name of another kind.
	reserved             func(name string) bool
	accepts, destination string
	// uses lists the declared operations of the calls that its doors take, and byDefault is
	// what these say where their operation doesn't. Nil: they take none.
	uses      func(c *Config) []string
	byDefault routeDefault
}

// doorSections are the sections with doors. A new kind of door adds a line here, and its
// section to [Config]. Inboxes come last, because they serve further paths than they list.
var doorSections = []doorSection{whatsAppDoors, webhookDoors, forrstDoors, a2aDoors, mcpDoors, commerceDoors, activityPubDoors}

// ReservedOperation reports whether a name belongs to the service's own doors, so that
// nobody may declare such an operation or begin its calls.
func ReservedOperation(name string) bool {
	return deliveryOperation(name) || slices.ContainsFunc(doorSections, func(s doorSection) bool { return s.reserved != nil && s.reserved(name) })
}

// ownNames keeps operations and destinations apart from the service's own.
func (v *validator) ownNames() {
	for at, op := range items("operations", v.c.Operations) {
		if deliveryOperation(op.Name) {
			v.bad(at+".name", "", "names like %q belong to deliveries of messages", op.Name)
		}
	}
	for _, section := range doorSections {
		if section.reserved == nil || len(section.mounts(v.c)) == 0 {
			continue
		}
		for at, op := range items("operations", v.c.Operations) {
			if section.reserved(op.Name) {
				v.bad(at+".name", "", "names like %q are those by which %s are accepted", op.Name, section.accepts)
			}
		}
		for at, d := range items("dispatch.destinations", v.c.Dispatch.Destinations) {
			if section.reserved(d.Name) || d.Name == section.destination && d.Name != "" {
				v.bad(at+".name", "", "names like %q are those of accepted %s", d.Name, section.accepts)
			}
		}
	}
}

// mount is the place of a door on the data listener, which no route and no other door may
// have: one of the two would get no requests.
type mount struct {
	door  string   // its section, such as webhooks[0]
	path  string   // the setting that says where it is
	paths []string // where it is
	// serves reports further paths; nil: there are none.
	serves func(path string) bool
	// is names the door at a path, and hint says what to do.
	is, hint string
}

// mountAt is the place of a door that has one path, and those below it.
func mountAt(door, path, is string, below bool) mount {
	m := mount{door: door, path: door + ".path", paths: []string{path}, is: is, hint: "give it another path"}
	if prefix := path + "/"; below {
		m.serves = func(path string) bool { return len(prefix) > 2 && strings.HasPrefix(path, prefix) } // at the root, nothing else
	}
	return m
}

// mounts lists the doors. It leaves out doors without a path.
func (c *Config) mounts() (list []mount) {
	for _, section := range doorSections {
		for _, m := range section.mounts(c) {
			if m.paths = slices.DeleteFunc(m.paths, func(p string) bool { return p == "" }); len(m.paths) > 0 {
				list = append(list, m)
			}
		}
	}
	return list
}

func (m *mount) at(path string) bool {
	return slices.Contains(m.paths, path) || m.serves != nil && m.serves(path)
}

// mounts refuses routes at the paths of doors, and two doors at one path.
func (v *validator) mounts() {
	list := v.c.mounts()
	for i := range list {
		m := &list[i]
		for k := range v.c.Routes {
			match := v.c.Routes[k].Match
			if at := strings.TrimSuffix(match[strings.LastIndex(match, " ")+1:], "{$}"); m.at(at) {
				v.bad(fmt.Sprintf("routes[%d].match", k), m.hint, "%s is %s, so the route would get no requests", at, m.is)
			}
		}
		for k := range i {
			v.apart(&list[k], m)
		}
	}
}

// apart refuses a door at a path of an earlier one.
func (v *validator) apart(first, m *mount) {
	if m.serves != nil && first.serves != nil {
		if slices.ContainsFunc(m.paths, first.serves) || slices.ContainsFunc(first.paths, m.serves) {
			v.bad(m.path, "give each its own paths", "it has paths of %s", first.door)
		}
		return
	}
	if m.serves != nil {
		first, m = m, first
	}
	i := slices.IndexFunc(m.paths, first.at)
	switch {
	case i < 0:
	case first.serves != nil:
		v.bad(m.path, "give each a path of its own", "%s is %s", m.paths[i], first.is)
	default:
		v.bad(m.path, "give each a path of its own", "%s has the path %s too", first.door, m.paths[i])
	}
}

var plainPath = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)+$`)

func (v *validator) plainPath(at, p, example string) {
	switch {
	case p == "":
	case !plainPath.MatchString(p) || path.Clean(p) != p:
		v.bad(at, "write such as "+example, "%q is not a path of plain words", p)
	case strings.HasPrefix(p+"/", "/v1/") || strings.HasPrefix(p+"/", ownPrefix):
		v.bad(at, "write such as "+example, "paths like %q belong to the API", p)
	}
}
