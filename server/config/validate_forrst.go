package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/strictyaml"
	"github.com/semelhq/semel/transport/semelhttp"
)

// minHashKey is the shortest secret of a keyed hash, in bytes.
const minHashKey = 16

// HashKey reads the secret of keyed hashes; nil where none is given.
func (f *Forrst) HashKey() ([]byte, error) {
	if f.HashKeyFile == "" {
		return nil, nil
	}
	list, err := readSecretFiles([]string{f.HashKeyFile})
	if err != nil {
		return nil, err
	}
	return []byte(list[0]), nil
}

// deriveForrst fills in what follows from other settings.
func deriveForrst(c *Config, follows func(path, from string)) {
	for i := range c.Forrst {
		f := &c.Forrst[i]
		if f.Anonymous == "" {
			f.Anonymous = semelhttp.AnonymousLoopback
			if c.Auth.Configured() {
				f.Anonymous = semelhttp.AnonymousRefuse
				follows(fmt.Sprintf("forrst[%d].anonymous", i), "auth")
			}
		}
		for k := range f.Functions {
			if fn := &f.Functions[k]; fn.Operation == "" && c.operation(DefaultOperation) != nil {
				fn.Operation = DefaultOperation
			}
		}
	}
}

// forrst checks the services that are offered over Forrst.
func (v *validator) forrst() {
	for i := range v.c.Forrst {
		f, at := &v.c.Forrst[i], fmt.Sprintf("forrst[%d]", i)
		v.plainPath(at+".path", f.Path, "/forrst")
		if f.HashKeyFile != "" {
			if key, ok := secretFile(v.Report, at+".hash_key_file", f.HashKeyFile); ok && len(key) < minHashKey {
				v.bad(at+".hash_key_file", "make one with: openssl rand -base64 32", "the secret has %d bytes, fewer than %d", len(key), minHashKey)
			}
		}
		v.credentials(at+".credential", f.Credential)
		v.body(at+".max_body", f.MaxBody)
		v.forrstFunctions(at+".functions", f.Functions)
	}
}

func (v *validator) forrstFunctions(at string, list []ForrstFunction) {
	var operations []string
	for _, op := range v.c.Operations {
		operations = append(operations, op.Name)
	}
	names := map[string]int{}
	for i, fn := range list {
		at := fmt.Sprintf("%s[%d]", at, i)
		if first, twice := names[fn.Name]; twice && fn.Name != "" {
			v.bad(at+".name", "add its versions there", "item %d has the name %q too", first, fn.Name)
		}
		names[fn.Name] = i
		if strings.HasPrefix(fn.Name, "forrst.") || strings.HasPrefix(fn.Name, "urn:cline:forrst:") {
			v.bad(at+".name", "", "names like %q are Forrst's own", fn.Name)
		}
		for k, version := range fn.Versions {
			at := fmt.Sprintf("%s.versions[%d]", at, k)
			switch {
			case version == "" || semver.Canonical("v"+version) != "v"+version:
				v.bad(at, "write such as 1.0.0", "%q is not a semantic version", version)
			case slices.Index(fn.Versions, version) != k:
				v.bad(at, "", "%s is there twice", version)
			case len(fn.Name)+len(version) >= maxForrstName:
				v.bad(at, "", "the name with this version has %d bytes, more than %d", len(fn.Name)+len(version), maxForrstName-1)
			}
		}
		v.forrstArguments(at+".arguments", &list[i])
		switch {
		case v.Faulty["operations"]:
		case fn.Operation == "":
			v.bad(at+".operation", "the operations are "+strings.Join(operations, ", "), "operation is missing, and there is none named %s", DefaultOperation)
		case v.c.operation(fn.Operation) == nil:
			hint := cmp.Or(strictyaml.DidYouMean(fn.Operation, operations), "the operations are "+strings.Join(operations, ", "))
			v.bad(at+".operation", hint, "there is no operation %q", fn.Operation)
		}
	}
}

// maxForrstName bounds the name of a function with one of its versions, in bytes, with a
// mark between them.
const maxForrstName = 96

// byForrst reports whether a function over Forrst uses the operation.
func (c *Config) byForrst(operation string) bool {
	return slices.ContainsFunc(c.Forrst, func(f Forrst) bool {
		return slices.ContainsFunc(f.Functions, func(fn ForrstFunction) bool { return fn.Operation == operation })
	})
}

// forrstDefault is what functions over Forrst say where their operation does not.
var forrstDefault = routeDefault{profile: "forrst", failure: semel.ReplayFailure}
