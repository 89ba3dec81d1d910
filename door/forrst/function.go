package forrst

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/argschema"
	"github.com/semelhq/semel/store"
)

// Handler runs one function. Its result is anything with a JSON form; nil is null. An error is
// an [*Error] or [Errors], or any other error, which callers see as INTERNAL_ERROR without its
// text; the package documentation says which are recorded.
//
// The context is cancelled when the function's time is over or the lease is lost. It isn't
// cancelled when the caller hangs up.
type Handler func(ctx context.Context, x semel.Execution, r *Request) (any, error)

// Function is one of a service's functions.
type Function struct {
	// Name is dotted, such as payments.charge, or a URN. At most 96 bytes with the
	// longest of its versions. Names that begin with forrst. or urn:cline:forrst: are
	// Forrst's own.
	Name string
	// Operation is the policy. Its Name defaults to the function's. If only its name is set, it
	// stands for the engine's operation with that name, if any. Functions may share one: their
	// keys stay apart.
	//
	// With the class [semel.ReadOnly] nothing is recorded, and the idempotency extension is
	// refused as not applicable.
	Operation semel.Operation
	// Key says whether a request must have the idempotency extension. Defaults to
	// [semelhttp.KeyRequired]. If it is optional, a request without it is a call of its own,
	// and so is each retry.
	Key semelhttp.KeyRule
	// Description and SideEffects, which are create, update and delete, appear in the
	// function's describe.
	Description string
	SideEffects []string
	// Versions that callers can call. At least one.
	Versions []Version
}

// Version is one version of a function.
type Version struct {
	// Version is semantic, such as 1.0.0 or 2.0.0-beta.1, without build metadata.
	Version string
	// Run executes the function. Required.
	Run Handler
	// Arguments is a JSON Schema, of draft 2020-12 unless it names another. A call with
	// arguments that don't fit is refused with SCHEMA_VALIDATION_FAILED and never runs.
	// If its key was used before, it gets that outcome. Optional: any object fits.
	Arguments json.RawMessage
	// Returns is a JSON Schema, too. Results aren't checked against it.
	Returns json.RawMessage
	// Description appears in the version's describe, next to the schemas.
	Description string
}

// function is a registered function.
type function struct {
	Function
	operation string
	share     semel.Share
	onFailure semel.AfterFailure
	financial bool
	readOnly  bool
	versions  map[string]*Version
	arguments map[string]*argschema.Schema // by version; nil: any object fits
	latest    string                       // the latest stable one; empty if there is none
}

// maxName bounds the names of functions with their versions, which become the scope of
// a call.
const maxName = 96

// register checks a function and registers its operation.
func register(engine *semel.Engine, f Function) (*function, error) {
	f.Key = cmp.Or(f.Key, semelhttp.KeyRequired)
	arguments, err := f.validate()
	if err != nil {
		return nil, err
	}
	op := f.Operation
	op.Name = cmp.Or(op.Name, f.Name)
	if op, err = door.Declare(engine, op); err != nil {
		return nil, fmt.Errorf("forrst: function %q: %w", f.Name, err)
	}
	reg := &function{
		Function: f, operation: op.Name, share: op.Share, onFailure: op.OnFailure, financial: op.Financial,
		readOnly: op.Class == semel.ReadOnly, versions: map[string]*Version{}, arguments: arguments,
	}
	for i := range f.Versions {
		v := &f.Versions[i]
		reg.versions[v.Version] = v
		if semver.Prerelease("v"+v.Version) == "" && (reg.latest == "" || semver.Compare("v"+v.Version, "v"+reg.latest) > 0) {
			reg.latest = v.Version
		}
	}
	return reg, nil
}

// validate reports everything that is wrong with the declaration, and returns the schemas of
// arguments.
func (f *Function) validate() (map[string]*argschema.Schema, error) {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("forrst: function %q: "+format, append([]any{f.Name}, args...)...))
	}
	if f.Name == "" || !store.ValidText(f.Name) {
		bad("Name is empty, not valid UTF-8, or has a NUL byte")
	}
	if strings.HasPrefix(f.Name, "forrst.") || strings.HasPrefix(f.Name, "urn:cline:forrst:") {
		bad("names like this are Forrst's own")
	}
	if f.Key != semelhttp.KeyRequired && f.Key != semelhttp.KeyOptional {
		bad("Key is %q, not required or optional", f.Key)
	}
	if f.Operation.Confirmation != nil {
		bad("Forrst has no answer that asks for a confirmation")
	}
	if len(f.Versions) == 0 {
		bad("there are no Versions")
	}
	seen, arguments := map[string]bool{}, map[string]*argschema.Schema{}
	for _, v := range f.Versions {
		switch {
		case !validVersion(v.Version):
			bad("%q is not a semantic version such as 1.0.0", v.Version)
		case seen[v.Version]:
			bad("version %s is there twice", v.Version)
		case len(f.Name)+len("@")+len(v.Version) > maxName:
			bad("the name with version %s has more than %d bytes", v.Version, maxName)
		}
		seen[v.Version] = true
		if v.Run == nil {
			bad("version %s has no Run", v.Version)
		}
		if v.Returns != nil && !json.Valid(v.Returns) {
			bad("version %s has Returns that are not JSON", v.Version)
		}
		if v.Arguments != nil {
			schema, err := argschema.Compile(v.Arguments)
			if err != nil {
				bad("the Arguments of version %s aren't a JSON Schema: %w", v.Version, err)
			}
			arguments[v.Version] = schema
		}
	}
	for _, effect := range f.SideEffects {
		if !slices.Contains([]string{"create", "update", "delete"}, effect) {
			bad("SideEffects has %q, not create, update or delete", effect)
		}
	}
	return arguments, errors.Join(errs...)
}

// resolve finds the function that a request calls, and sets the version to run.
func (s *Service) resolve(r *Request) (*function, *Version, Errors) {
	f := s.functions[r.Function]
	if f == nil {
		return nil, nil, one(FunctionNotFound, At("call", "function"), "There is no such function")
	}
	r.Version = cmp.Or(r.asked, f.latest)
	v := f.versions[r.Version]
	if v == nil {
		e := one(VersionNotFound, At("call", "version"), "The function has no such version")
		if r.asked == "" {
			e = one(VersionNotFound, At("call"), "The function has no stable version; name one")
		}
		return nil, nil, e.detailed(map[string]any{"function": r.Function, "versions": f.sorted()})
	}
	return f, v, nil
}

// sorted returns the versions, the oldest first.
func (f *function) sorted() []string {
	return slices.SortedFunc(maps.Keys(f.versions), func(a, b string) int { return semver.Compare("v"+a, "v"+b) })
}
