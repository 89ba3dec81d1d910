package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/strictyaml"
)

func (v *validator) dispatch() {
	for path, d := range items("dispatch.destinations", v.c.Dispatch.Destinations) {
		v.senders(path+".operations", d.Operations)
		v.secrets(path+".secret_files", d.SecretFiles)
		v.rate(path+".rate", Rate(d.Rate))
	}
}

// senders checks that there are operations with these names: a list without any, or a
// misspelt name, would keep messages from being delivered.
func (v *validator) senders(path string, names []string) {
	var known []string
	for _, op := range v.c.Operations {
		known = append(known, op.Name)
	}
	for i, name := range names {
		prefix, all := strings.CutSuffix(name, "*")
		if all && strings.IndexByte(prefix, '*') < 0 || slices.Contains(known, name) || v.c.Commands.Registry != "" {
			continue // a command is an operation too
		}
		v.bad(fmt.Sprintf("%s[%d]", path, i), strictyaml.DidYouMean(name, known), "there is no operation %q", name)
	}
}

func (v *validator) secrets(path string, files []string) {
	first := map[string]string{}
	for at, file := range items(path, files) {
		text, ok := secretFile(v.Report, at, *file)
		if !ok {
			continue
		}
		if other, twice := first[text]; twice {
			v.bad(at, "keep one of them", "%s has the same secret", other)
		}
		first[text] = *file
		if _, err := dispatch.HTTP(dispatch.HTTPOptions{URL: "http://unused", Secrets: []string{text}}); err != nil {
			v.bad(at, "", "%s has no secret, which is whsec_ and 24 to 64 bytes in base64", *file)
		}
	}
}

// Accepts reports whether calls of an operation and tenant may send to the destination.
func (d *Destination) Accepts(tenant, operation string) bool {
	byName := slices.ContainsFunc(d.Operations, func(name string) bool {
		prefix, all := strings.CutSuffix(name, "*")
		return name == operation || all && strings.HasPrefix(operation, prefix)
	})
	return byName && (len(d.Tenants) == 0 || slices.Contains(d.Tenants, tenant))
}

// MaySend reports whether calls may send to a destination of this name. An unknown
// destination accepts messages from everybody: a node that has it decides when it is
// delivered.
func (d *Dispatch) MaySend(tenant, operation, destination string) bool {
	i := slices.IndexFunc(d.Destinations, func(known Destination) bool { return known.Name == destination })
	return i < 0 || d.Destinations[i].Accepts(tenant, operation)
}

// ReadSecrets reads files that contain only a secret each.
func ReadSecrets(files []string) (list []string, err error) {
	for _, file := range files {
		text, err := readSecret(file)
		if err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	return list, nil
}

func readSecret(file string) (string, error) {
	data, err := auth.ReadFile(file, maxSecret)
	return strings.TrimSpace(string(data)), err
}

// deliveryOperation reports whether the operation belongs to messages on their way.
func deliveryOperation(name string) bool {
	return strings.HasPrefix(name, "semel.")
}
