package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/argschema"
	"github.com/semelhq/semel/internal/service/auth"
)

// Forrst is a service that is offered over Forrst; see [forrst.Service].
type Forrst struct {
	// Path of the service on the data listener, such as /forrst. No route can hide it.
	Path string `json:"path" required:"true"`
	// Where calls go, once each and without the idempotency extension: an http or https URL that speaks Forrst.
	Upstream string `json:"upstream" required:"true" format:"http"`
	// Functions that can be called.
	Functions []ForrstFunction `json:"functions" required:"true"`
	// Name of the service in its capabilities.
	Service string `json:"service" default:"semel"`
	// URNs of extensions that the upstream understands. Any other one is refused if it changes what a call does or returns, as urn:forrst:ext:dry-run does.
	Extensions []string `json:"extensions,omitempty" format:"urn"`
	// Longest time that a request may ask to have its result kept.
	MaxTTL Duration `json:"max_ttl" default:"30d" range:"1s,3650d"`
	// What a conflict shows of the first arguments. plain is a SHA-256, so anybody who sees it can test guesses of the arguments.
	ArgumentsHash string `json:"arguments_hash" default:"keyed" enum:"keyed,plain"`
	// File with the secret of keyed hashes, at least 16 bytes. With the same secret, all nodes show the same hash of equal arguments. By default each node makes one when it starts.
	HashKeyFile string `json:"hash_key_file,omitzero"`
	// Answers have the form of the examples in Forrst's specification: arguments_hash is plain, there is no retry extension, and the answer while a call is processed has no data.
	PublishedForm bool `json:"published_form,omitzero"`
	// What a request with a key gets from a function that only reads: a refusal (EXTENSION_NOT_APPLICABLE), or the function runs and the key counts for nothing.
	ReadKeys string `json:"read_keys" default:"refuse" enum:"refuse,ignore"`
	// Header in which the upstream gets the key of the request, such as Idempotency-Key.
	PassKey string `json:"pass_key,omitzero" format:"header"`
	// Attributes to keep with the record of a call, to find it by: json:/POINTER in the arguments of the function, or header:NAME.
	Attributes []string `json:"attributes,omitempty" pairs:"true"`
	Callers    `yaml:",inline"`
	// Largest request.
	MaxBody    Size `json:"max_body" default:"1MiB" range:"1,1GiB"`
	Forwarding `yaml:",inline"`
}

// ForrstFunction is a function that can be called over Forrst.
type ForrstFunction struct {
	// Name of the function, such as payments.charge.
	Name string `json:"name" required:"true" unique:"add its versions there"`
	// Versions that can be called, such as 1.0.0.
	Versions []string `json:"versions" required:"true" unique:"keep one of them"`
	// Name of the operation. One of class I0 only reads and has no key. Defaults to default where there is an operation of that name.
	Operation string `json:"operation,omitzero"`
	// Whether a request must have a key. Without one a request is a call of its own.
	Key semelhttp.KeyRule `json:"key" default:"required" enum:"required,optional"`
	// JSON Schemas of the arguments. Calls that do not fit are refused and not sent to the upstream.
	Arguments []ForrstArguments `json:"arguments,omitempty"`
}

// ForrstArguments is the JSON Schema of a function's arguments.
type ForrstArguments struct {
	// File with the schema in JSON, of draft 2020-12 unless it names another.
	File string `json:"file" required:"true"`
	// Version of the function that it is for. Defaults to all that no other schema names.
	Version string `json:"version,omitzero"`
}

// minHashKey is the shortest secret of a keyed hash, in bytes.
const minHashKey = 16

// HashKey reads the secret of keyed hashes; nil where there is none.
func (f *Forrst) HashKey() ([]byte, error) {
	if f.HashKeyFile == "" {
		return nil, nil
	}
	key, err := readSecret(f.HashKeyFile)
	return []byte(key), err
}

var forrstDoors = doorSection{derive: deriveForrst, validate: (*validator).forrst, mounts: func(c *Config) (list []mount) {
	for door, f := range items("forrst", c.Forrst) {
		list = append(list, mountAt(door, f.Path, "that of a service over Forrst", false))
	}
	return list
}, uses: func(c *Config) (operations []string) {
	for _, f := range c.Forrst {
		for _, fn := range f.Functions {
			operations = append(operations, fn.Operation)
		}
	}
	return operations
}, byDefault: routeDefault{profile: "forrst", failure: semel.ReplayFailure}}

func deriveForrst(c *Config, _ *Origins, follows func(path, from string)) {
	for path, f := range items("forrst", c.Forrst) {
		c.deriveAnonymous(&f.Anonymous, path, follows)
		for k := range f.Functions {
			c.deriveOperation(&f.Functions[k].Operation)
		}
	}
}

func (v *validator) forrst() {
	for at, f := range items("forrst", v.c.Forrst) {
		v.answers(at, f.Answers)
		v.plainPath(at+".path", f.Path, "/forrst")
		if f.HashKeyFile != "" {
			if key, ok := secretFile(v.Report, at+".hash_key_file", f.HashKeyFile); ok && len(key) < minHashKey {
				v.bad(at+".hash_key_file", "make one with: openssl rand -base64 32", "the secret has %d bytes, fewer than %d", len(key), minHashKey)
			}
		}
		v.credentials(at+".credential", f.Credential)
		v.body(at+".max_body", f.MaxBody)
		v.attributes(at, "forrst", f.Attributes)
		v.forrstFunctions(at+".functions", f.Functions)
	}
}

func (v *validator) forrstFunctions(at string, list []ForrstFunction) {
	for at, fn := range items(at, list) {
		if strings.HasPrefix(fn.Name, "forrst.") || strings.HasPrefix(fn.Name, "urn:cline:forrst:") {
			v.bad(at+".name", "", "names like %q are Forrst's own", fn.Name)
		}
		for k, version := range fn.Versions {
			at := fmt.Sprintf("%s.versions[%d]", at, k)
			switch {
			case version == "" || semver.Canonical("v"+version) != "v"+version:
				v.bad(at, "write such as 1.0.0", "%q is not a semantic version", version)
			case len(fn.Name)+len(version) >= maxForrstName:
				v.bad(at, "", "the name with this version has %d bytes, more than %d", len(fn.Name)+len(version), maxForrstName-1)
			}
		}
		v.forrstArguments(at+".arguments", fn)
		v.operationOf(at, fn.Operation)
	}
}

// maxForrstName bounds the name of a function, a mark and one of its versions together, in bytes.
const maxForrstName = 96

// ReadArguments reads the schema of a version's arguments; nil where there is none.
func (fn *ForrstFunction) ReadArguments(version string) (json.RawMessage, error) {
	for _, wanted := range []string{version, ""} {
		if i := slices.IndexFunc(fn.Arguments, func(a ForrstArguments) bool { return a.Version == wanted }); i >= 0 {
			return auth.ReadFile(fn.Arguments[i].File, maxFile)
		}
	}
	return nil, nil
}

func (v *validator) forrstArguments(at string, fn *ForrstFunction) {
	first := map[string]int{}
	for i, a := range fn.Arguments {
		at := fmt.Sprintf("%s[%d]", at, i)
		if a.Version != "" && !slices.Contains(fn.Versions, a.Version) {
			v.bad(at+".version", "the versions are "+strings.Join(fn.Versions, ", "), "the function has no version %q", a.Version)
		}
		if k, twice := first[a.Version]; twice {
			v.bad(at, "keep one of them", "item %d is for the same versions", k)
		}
		first[a.Version] = i
		if a.File == "" {
			continue
		}
		text, err := auth.ReadFile(a.File, maxFile)
		if err != nil {
			v.bad(at+".file", "", "the file can't be read: %v", err)
			continue
		}
		if _, err := argschema.Compile(text); err != nil {
			v.bad(at+".file", "", "%s is no JSON Schema: %s", a.File, strings.Join(strings.Fields(err.Error()), " "))
		}
	}
}
