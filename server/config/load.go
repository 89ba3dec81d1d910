package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/server/auth"
	"github.com/semelhq/semel/transport/semelhttp"
)

// Source is where a configuration comes from.
type Source struct {
	// Path is the file, and its name in errors. Empty, without Data: no file.
	Path string
	// Data is the content of the file. If it is nil, Path is read.
	Data []byte
	// Env looks up a variable of the environment. Nil: there are none.
	Env func(name string) (value string, set bool)
	// Flags has values by the name of the flag, without dashes, or by the path
	// of the setting. A list is written with commas.
	Flags map[string]string
}

// Default is the configuration of a service without a file.
func Default() *Config {
	c, _, err := Load(Source{})
	if err != nil {
		panic("config: the defaults are wrong: " + err.Error())
	}
	return c
}

// Load reads a configuration and checks it. What is wrong with it comes as
// [Errors], everything at once; any other error says that the file could not be
// read. Files that settings name with url_file, token_file and secret_files, and
// those of WhatsApp's secrets, are read; those of certificates and keys are not.
func Load(src Source) (*Config, *Origins, error) {
	env := src.Env
	if env == nil {
		env = func(string) (string, bool) { return "", false }
	}
	origins := &Origins{at: map[string]Origin{}}
	p := &problems{origins: origins, faulty: map[string]bool{}}
	c := &Config{}
	top := reflect.ValueOf(c).Elem()
	fillDefaults(top)
	if src.Data == nil && src.Path != "" {
		data, err := auth.ReadFile(src.Path, maxFile)
		if err != nil {
			return nil, origins, err
		}
		src.Data = data
	}
	if src.Data != nil {
		p.file = cmp.Or(src.Path, "config")
		p.lines = strings.Split(string(src.Data), "\n")
		d := &decoder{problems: p, env: env}
		if !d.decode(src.Data, top) {
			return nil, origins, p.sorted()
		}
	}
	overlay(p, top, env, src.Flags)
	readSecrets(p, c)
	derive(c, origins, p)
	validate(p, c)
	if errs := p.sorted(); len(errs) > 0 {
		return nil, origins, errs
	}
	return c, origins, nil
}

// overlay sets what the environment and the flags say.
func overlay(p *problems, top reflect.Value, env func(string) (string, bool), flags map[string]string) {
	set := func(path string, v reflect.Value, f field, text string, from Origin) {
		delete(p.faulty, path) // a mistake in the file stays one, but says nothing about this value
		p.origins.at[path] = from
		if bad, is := errors.AsType[*valueError](setText(v, f, text)); is {
			p.add(path, bad.message, bad.hint)
		}
	}
	known, used := []string{}, map[string]bool{}
	eachLeaf("", top, func(path string, v reflect.Value, f field) {
		known = append(known, path)
		if f.flag != "" {
			known = append(known, f.flag)
		}
		if name := EnvName(path); name != "" {
			if text, ok := env(name); ok {
				set(path, v, f, text, Origin{Kind: FromEnv, Name: name})
			}
		}
		for _, name := range []string{path, f.flag} {
			if text, ok := flags[name]; ok && name != "" {
				used[name] = true
				set(path, v, f, text, Origin{Kind: FromFlag, Name: name})
			}
		}
	})
	for name := range flags {
		if !used[name] {
			p.list = append(p.list, &Error{From: "flag --" + name, Message: "there is no setting " + name, Suggestion: didYouMean(name, known)})
		}
	}
}

// readSecrets replaces settings that are kept in files of their own.
func readSecrets(p *problems, c *Config) {
	if c.Store.URLFile != "" {
		if p.origins.written("store.url") {
			p.add("store.url_file", "both url and url_file are given", "keep one of them")
		} else if text, ok := secretFile(p, "store.url_file", c.Store.URLFile); ok {
			c.Store.URL = text
			p.origins.at["store.url"] = p.origins.Of("store.url_file")
		}
	}
	for i := range c.Auth.Tokens {
		t, path := &c.Auth.Tokens[i], fmt.Sprintf("auth.tokens[%d]", i)
		switch {
		case t.TokenFile == "" && t.SHA256 == "":
			if !p.faulty[path+".token_file"] {
				p.add(path+".sha256", "neither sha256 nor token_file is given", "make the digest with: printf %s TOKEN | sha256sum")
			}
		case t.TokenFile != "" && t.SHA256 != "":
			p.add(path+".token_file", "both sha256 and token_file are given", "keep one of them")
		case t.TokenFile != "":
			if text, ok := secretFile(p, path+".token_file", t.TokenFile); ok {
				t.SHA256 = digest(text)
				p.origins.at[path+".sha256"] = p.origins.Of(path + ".token_file")
			}
		}
	}
}

// maxSecret bounds a file that has nothing but a secret, in bytes.
const maxSecret = 64 << 10

// secretFile reads a file that has nothing but a secret.
func secretFile(p *problems, path, name string) (string, bool) {
	data, err := auth.ReadFile(name, maxSecret)
	if err != nil {
		p.add(path, "the file can't be read: "+err.Error(), "")
		return "", false
	}
	text := strings.TrimSpace(string(data))
	if text == "" {
		p.add(path, "the file "+name+" is empty", "")
		return "", false
	}
	return text, true
}

// DefaultOperation is the operation of routes that name none.
const DefaultOperation = "default"

// derive fills in what follows from other settings.
func derive(c *Config, origins *Origins, p *problems) {
	follows := func(path, from string) { origins.at[path] = Origin{Kind: FromDefault, Name: from} }
	for i := range c.Auth.Tokens {
		t := &c.Auth.Tokens[i]
		t.Principal = cmp.Or(t.Principal, t.Name)
		t.Tenant = cmp.Or(t.Tenant, c.Auth.DefaultTenant)
	}
	for i := range c.Auth.MTLS {
		m := &c.Auth.MTLS[i]
		m.Principal = cmp.Or(m.Principal, m.Subject)
		m.Tenant = cmp.Or(m.Tenant, c.Auth.DefaultTenant)
	}
	deriveWhatsApp(c, origins)
	if c.API == "" {
		c.API = APIOpen
		if c.Auth.Configured() {
			c.API = APIVerified
			follows("api", "auth")
		}
	}
	if len(c.Operations) == 0 {
		c.Operations = []Operation{{Name: DefaultOperation}}
		fillDefaults(reflect.ValueOf(&c.Operations[0]).Elem())
	}
	for i := range c.Routes {
		r, path := &c.Routes[i], fmt.Sprintf("routes[%d]", i)
		if r.Operation == "" && c.operation(DefaultOperation) != nil {
			r.Operation = DefaultOperation
		}
		if r.Anonymous == "" {
			r.Anonymous = semelhttp.AnonymousLoopback
			if c.Auth.Configured() {
				r.Anonymous = semelhttp.AnonymousRefuse
				follows(path+".anonymous", "auth")
			}
		}
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
	byRoutes := routeDefaults(c, p)
	for i := range c.Operations {
		op, path := &c.Operations[i], fmt.Sprintf("operations[%d]", i)
		def := byRoutes[op.Name]
		if op.OnFailure == "" {
			op.OnFailure = cmp.Or(def.failure, semel.ReplayFailure)
			if def.failure != "" {
				follows(path+".on_failure", "profile "+def.profile)
			}
		}
		if strings.HasPrefix(c.Store.URL, "redis") && !origins.written(path+".max_result") {
			op.MaxResult = redisMaxResult
		}
		if op.Window == 0 && !origins.written(path+".window") && op.Class != semel.Windowed {
			switch {
			case def.window != 0:
				op.Window = def.window
				follows(path+".window", "profile "+def.profile)
			case op.Financial:
				op.Window = Duration(semel.DefaultFinancialWindow)
				follows(path+".window", "financial")
			default:
				op.Window = Duration(semel.DefaultWindow)
			}
		}
	}
}

// operation finds an operation by its name.
func (c *Config) operation(name string) *Operation {
	i := slices.IndexFunc(c.Operations, func(op Operation) bool { return op.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Operations[i]
}

// A routeDefault is what the profile of an operation's routes says where the
// operation does not.
type routeDefault struct {
	profile string
	failure semel.AfterFailure
	window  Duration
}

// routeDefaults finds those of all operations. Routes that disagree must be
// settled by the operation.
func routeDefaults(c *Config, p *problems) map[string]routeDefault {
	index := map[string]int{}
	for i, op := range c.Operations {
		index[op.Name] = i
	}
	found := map[string]routeDefault{}
	for _, r := range c.Routes {
		profile, ok := semelhttp.ProfileByName(r.Profile)
		i, known := index[r.Operation]
		if !ok || !known || r.Mode == "off" {
			continue
		}
		have := routeDefault{profile.Name, cmp.Or(profile.OnFailure, semel.RetryFailure), Duration(profile.Window)}
		first, others := found[r.Operation]
		if !others {
			found[r.Operation] = have
			continue
		}
		op, path := c.Operations[i], fmt.Sprintf("operations[%d]", i)
		message := fmt.Sprintf("the profiles %s and %s of its routes have different defaults", first.profile, have.profile)
		if first.failure != have.failure && op.OnFailure == "" {
			p.add(path+".on_failure", message, "write replay or retry")
		}
		if first.window != have.window && op.Window == 0 {
			p.add(path+".window", message, "write one, such as 7d")
		}
	}
	return found
}
