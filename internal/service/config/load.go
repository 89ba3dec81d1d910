package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/strictyaml"
)

// Errors of a configuration, and where its settings came from.
type (
	// Error is one error in the configuration.
	Error = strictyaml.Error
	// Errors has all errors, in the order of the file.
	Errors = strictyaml.Errors
	// Origin is where a setting came from.
	Origin = strictyaml.Origin
	// Origins says where each setting came from.
	Origins = strictyaml.Origins
	// Duration is a time span such as 90s, 1h30m or 7d, and Size a number of bytes
	// such as 512 or 1MiB.
	Duration = strictyaml.Duration
	Size     = strictyaml.Size
)

// ParseDuration parses a time span.
func ParseDuration(text string) (Duration, error) { return strictyaml.ParseDuration(text) }

// maxFile bounds a file in bytes, and maxDepth its nested lists and mappings.
const maxFile, maxDepth = 1 << 20, 32

// Source is where a configuration comes from.
type Source struct {
	// Path is the file, and its name in errors. Empty, without Data: no file.
	Path string
	// Data is the content of the file. If it is nil, Path is read.
	Data []byte
	// Env looks up a variable of the environment. Nil: there are none.
	Env func(name string) (value string, set bool)
	// Flags has values by the name of the flag, without dashes, or by the path of the
	// setting. Lists are separated by commas.
	Flags map[string]string
}

// Load reads a configuration and checks it. It returns all errors at once, as [Errors]; any
// other error says that the file could not be read. It also reads the files named by url_file,
// token_file and secret_files, and those with the secrets of WhatsApp, of webhooks and of
// upstreams, with sources, with machines and with schemas of arguments, but no certificates and
// keys.
func Load(src Source) (*Config, *Origins, error) {
	env := src.Env
	if env == nil {
		env = func(string) (string, bool) { return "", false }
	}
	p := strictyaml.NewReport("")
	c := &Config{}
	top := reflect.ValueOf(c).Elem()
	strictyaml.FillDefaults(top)
	if src.Data == nil && src.Path != "" {
		data, err := auth.ReadFile(src.Path, maxFile)
		if err != nil {
			return nil, p.Origins, err
		}
		src.Data = data
	}
	if src.Data != nil {
		p.File = cmp.Or(src.Path, "config")
		p.ShowLines(src.Data)
		variables := func(text string) (string, bool, *strictyaml.ValueError) { return expand(text, env) }
		if !p.Decode(src.Data, top, strictyaml.Options{Bytes: maxFile, Depth: maxDepth, Renamed: renamed, Expand: variables}) && len(p.List) > 0 {
			return nil, p.Origins, p.List
		}
	}
	overlay(p, top, env, src.Flags)
	readSecrets(p, c)
	if errs := check(p, c); len(errs) > 0 {
		return nil, p.Origins, errs
	}
	return c, p.Origins, nil
}

// check fills in what follows from other settings, and returns all errors.
func check(p *strictyaml.Report, c *Config) Errors {
	p.Formats = formats
	p.Check("", reflect.ValueOf(c).Elem())
	derive(c, p)
	validate(p, c)
	return p.Sorted()
}

func overlay(p *strictyaml.Report, top reflect.Value, env func(string) (string, bool), flags map[string]string) {
	set := func(path string, v reflect.Value, f strictyaml.Field, text string, from Origin) {
		delete(p.Faulty, path) // a mistake in the file is still reported, but this value may be fine
		p.Origins.At[path] = from
		if bad, is := errors.AsType[*strictyaml.ValueError](strictyaml.SetText(v, f, text)); is {
			p.Add(path, bad.Message, bad.Hint)
		}
	}
	known, used := []string{}, map[string]bool{}
	strictyaml.EachLeaf("", top, func(path string, v reflect.Value, f strictyaml.Field) {
		known = append(known, path)
		if f.Flag != "" {
			known = append(known, f.Flag)
		}
		if name := EnvName(path); name != "" {
			if text, ok := env(name); ok {
				set(path, v, f, text, Origin{Kind: strictyaml.FromEnv, Name: name})
			}
		}
		for _, name := range []string{path, f.Flag} {
			if text, ok := flags[name]; ok && name != "" {
				used[name] = true
				set(path, v, f, text, Origin{Kind: strictyaml.FromFlag, Name: name})
			}
		}
	})
	for name := range flags {
		if !used[name] {
			p.List = append(p.List, &Error{From: "flag --" + name, Message: "there is no setting " + name, Suggestion: strictyaml.DidYouMean(name, known)})
		}
	}
}

// readSecrets reads the settings that have files of their own.
func readSecrets(p *strictyaml.Report, c *Config) {
	if c.Store.URLFile != "" {
		if p.Origins.Written("store.url") {
			p.Add("store.url_file", "both url and url_file are given", "keep one of them")
		} else if text, ok := secretFile(p, "store.url_file", c.Store.URLFile); ok {
			c.Store.URL = text
			p.Origins.At["store.url"] = p.Origins.Of("store.url_file")
		}
	}
	if c.Admin.TokenFile != "" {
		if text, ok := secretFile(p, "admin.token_file", c.Admin.TokenFile); ok && len(text) < minAdminToken {
			p.Add("admin.token_file", fmt.Sprintf("the token has fewer than %d bytes", minAdminToken), "make one with openssl rand -hex 32")
		}
	}
	for path, t := range items("auth.tokens", c.Auth.Tokens) {
		switch {
		case t.TokenFile == "" && t.SHA256 == "":
			if !p.Faulty[path+".token_file"] {
				p.Add(path+".sha256", "neither sha256 nor token_file is given", "make the digest with: printf %s TOKEN | sha256sum")
			}
		case t.TokenFile != "" && t.SHA256 != "":
			p.Add(path+".token_file", "both sha256 and token_file are given", "keep one of them")
		case t.TokenFile != "":
			if text, ok := secretFile(p, path+".token_file", t.TokenFile); ok {
				t.SHA256 = auth.HashToken(text)
				p.Origins.At[path+".sha256"] = p.Origins.Of(path + ".token_file")
			}
		}
	}
}

// minAdminToken is the shortest token of the admin listener, in bytes.
const minAdminToken = 16

// Token reads the token of the admin listener.
func (a *Admin) Token() (string, error) { return readSecret(a.TokenFile) }

// maxSecret bounds a file that contains only a secret, in bytes.
const maxSecret = 64 << 10

func secretFile(p *strictyaml.Report, path, name string) (string, bool) {
	text, err := readSecret(name)
	switch {
	case err != nil:
		p.Add(path, "the file can't be used: "+err.Error(), "name one that the service can read, from the directory that it starts in, and not everybody can write")
	case text == "":
		p.Add(path, "the file "+name+" is empty", "write the secret into it")
	}
	return text, err == nil && text != ""
}

// redisMaxResult is the default of max_result on Redis, which keeps everything in memory.
const redisMaxResult = Size(256 << 10)

// DefaultOperation is the operation of routes that don't name one.
const DefaultOperation = "default"

// derive fills in what follows from other settings.
func derive(c *Config, p *strictyaml.Report) {
	origins := p.Origins
	follows := func(path, from string) { origins.At[path] = Origin{Kind: strictyaml.FromDefault, Name: from} }
	for _, t := range items("auth.tokens", c.Auth.Tokens) {
		t.Principal = cmp.Or(t.Principal, t.Name)
		t.Tenant, t.SHA256 = cmp.Or(t.Tenant, c.Auth.DefaultTenant), strings.ToLower(t.SHA256)
	}
	for _, m := range items("auth.mtls", c.Auth.MTLS) {
		m.Principal = cmp.Or(m.Principal, m.Subject)
		m.Tenant = cmp.Or(m.Tenant, c.Auth.DefaultTenant)
	}
	if c.API == "" {
		c.API = APIOpen
		if c.Auth.Configured() {
			c.API = APIVerified
			follows("api", "auth")
		}
	}
	if len(c.Operations) == 0 {
		c.Operations = []Operation{{Name: DefaultOperation}}
		strictyaml.FillDefaults(reflect.ValueOf(&c.Operations[0]).Elem())
	}
	c.deriveRoutes(follows)
	for _, section := range doorSections {
		section.derive(c, origins, follows)
	}
	deriveArchive(c, origins, follows)
	byRoutes := routeDefaults(c, p)
	for path, op := range items("operations", c.Operations) {
		op.derive(c, path, byRoutes[op.Name], p, follows)
	}
}

func (c *Config) deriveRoutes(follows func(path, from string)) {
	for path, r := range items("routes", c.Routes) {
		c.deriveOperation(&r.Operation)
		c.deriveAnonymous(&r.Anonymous, path, follows)
		profile, ok := semelhttp.ProfileByName(r.Profile)
		if !ok {
			continue
		}
		if r.Key == "" {
			r.Key = semelhttp.KeyRequired
			if profile.KeyOptional {
				r.Key = semelhttp.KeyOptional
			}
			follows(path+".key", "profile "+profile.Name)
		}
		if r.Body == "" {
			r.Body = cmp.Or(profile.Body, semelhttp.BodyAuto)
			follows(path+".body", "profile "+profile.Name)
		}
	}
}

// derive fills in what the profile of its routes says, by, and what follows from other settings.
func (op *Operation) derive(c *Config, path string, by routeDefault, p *strictyaml.Report, follows func(path, from string)) {
	if op.OnFailure == "" && op.Financial {
		op.OnFailure = semel.ReplayFailure
		follows(path+".on_failure", "financial")
	}
	if op.Financial && !op.Archive && !p.Origins.Written(path+".archive") {
		op.Archive = true
		follows(path+".archive", "financial")
		if !c.Archive.configured {
			p.Add(path+".financial", "its records are archived before they are purged, and no archive is configured", "write archive: {dir: ./semel-archive}, or archive: false in the operation")
		}
	}
	if op.OnFailure == "" {
		op.OnFailure = cmp.Or(by.failure, semel.ReplayFailure)
		if by.failure != "" {
			follows(path+".on_failure", "profile "+by.profile)
		}
	}
	if c.Store.Redis() && !p.Origins.Written(path+".max_result") {
		op.MaxResult = redisMaxResult
	}
	switch {
	case op.Window != 0 || p.Origins.Written(path+".window") || op.Class == semel.Windowed:
	case by.window != 0:
		op.Window = by.window
		follows(path+".window", "profile "+by.profile)
	case op.Financial:
		op.Window = Duration(semel.DefaultFinancialWindow)
		follows(path+".window", "financial")
	default:
		op.Window = Duration(semel.DefaultWindow)
	}
	if op.Remember == 0 && by.remember > op.Window {
		op.Remember = by.remember
		follows(path+".remember", "profile "+by.profile)
	}
}

func (c *Config) deriveOperation(name *string) {
	if *name == "" && c.operation(DefaultOperation) != nil {
		*name = DefaultOperation
	}
}

// deriveArchive decides where the archive is. A default directory counts as none: it may
// vanish with its container.
func deriveArchive(c *Config, origins *Origins, follows func(path, from string)) {
	a := &c.Archive
	a.configured = a.configured || origins.Written("archive.in") || origins.Written("archive.dir")
	if !a.configured && strings.HasPrefix(c.Store.URL, "postgres") {
		a.configured, a.In = true, "store"
		follows("archive.in", "store.url")
	}
}

// deriveAnonymous says who may call what lies at path without a credential, if nothing else
// does: anybody on this machine, and nobody once callers can be verified.
func (c *Config) deriveAnonymous(a *semelhttp.Anonymous, path string, follows func(path, from string)) {
	if *a != "" {
		return
	}
	*a = semelhttp.AnonymousLoopback
	if c.Auth.Configured() {
		*a = semelhttp.AnonymousRefuse
		follows(path+".anonymous", "auth")
	}
}

func (c *Config) operation(name string) *Operation {
	i := slices.IndexFunc(c.Operations, func(op Operation) bool { return op.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Operations[i]
}

// A routeDefault has what the profile of an operation's routes says where the operation doesn't.
type routeDefault struct {
	profile string
	failure semel.AfterFailure
	window  Duration
	// remember is how long calls stay known, at least their window; 0: as long as that.
	remember Duration
}

// routeDefaults finds the defaults of all operations. If routes disagree, these must decide.
func routeDefaults(c *Config, p *strictyaml.Report) map[string]routeDefault {
	index := map[string]int{}
	for i, op := range c.Operations {
		index[op.Name] = i
	}
	found := map[string]routeDefault{}
	add := func(operation string, have routeDefault) {
		i, known := index[operation]
		first, others := found[operation]
		if !known || !others {
			found[operation] = have
			return
		}
		first.remember = max(first.remember, have.remember)
		found[operation] = first
		op, path := c.Operations[i], fmt.Sprintf("operations[%d]", i)
		message := fmt.Sprintf("the profiles %s and %s of its routes have different defaults", first.profile, have.profile)
		if first.failure != have.failure && op.OnFailure == "" && !op.Financial {
			p.Add(path+".on_failure", message, "write replay or retry")
		}
		if first.window != have.window && op.Window == 0 {
			p.Add(path+".window", message, "write one, such as 7d")
		}
	}
	for _, r := range c.Routes {
		if profile, ok := semelhttp.ProfileByName(r.Profile); ok && r.Mode != "off" {
			add(r.Operation, routeDefault{profile: profile.Name, failure: cmp.Or(profile.OnFailure, semel.RetryFailure), window: Duration(profile.Window)})
		}
	}
	for _, section := range doorSections {
		if section.uses == nil {
			continue
		}
		for _, operation := range section.uses(c) {
			add(operation, section.byDefault)
		}
	}
	return found
}
