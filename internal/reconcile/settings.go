// Package reconcile asks somebody who knows the outcome of a held call: a vendor with an API that a
// file describes, or a database.
package reconcile

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/settle"
	"github.com/semelhq/semel/internal/strictyaml"
)

// Settings name the source that settles held calls, and the values that it asks by.
type Settings struct {
	// Whom to ask: adyen, github, paypal, shopify, sql or stripe, or a YAML file that says how to ask somebody else.
	Source string `json:"source" required:"true"`
	// What the source asks by, such as value={attribute:order_id}. A value may have {key}, {effect_key}, {operation}, {tenant} and {attribute:NAME} of the call.
	With []string `json:"with,omitempty" pairs:"true"`
	// File with the credential for the source; for sql, with the URL of the database.
	SecretFile string `json:"secret_file,omitzero"`
	// Address of the source, if it isn't the usual one, such as that of a sandbox.
	URL string `json:"url,omitzero"`
	// Query for sql, with $1 for the value.
	Query string `json:"query,omitzero"`
	// How long after its start a call that isn't found may still come. Defaults to what the source says, and is at least that.
	AbsentAfter strictyaml.Duration `json:"absent_after,omitzero" range:"1s,365d"`
}

// On reports whether there are any.
func (s *Settings) On() bool { return s.Source != "" }

// Settler asks one source, by settings that were checked.
type Settler struct {
	source *Source
	set    Settings
	with   map[string]string // templates of values
	base   *url.URL          // nil: a database
}

// New checks the settings and reads the source. Each question reads the secret anew, so that a new
// one counts at once.
func New(set Settings) (*Settler, error) {
	source, err := Read(set.Source)
	if err != nil {
		return nil, err
	}
	st := &Settler{source: source, set: set, with: map[string]string{}}
	for _, pair := range set.With {
		name, text, _ := strings.Cut(pair, "=")
		i := slices.IndexFunc(source.Values, func(v Value) bool { return v.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("with: %s asks by no %q; it asks by %s", source.Name, name, source.asksBy())
		}
		for _, of := range names(text) {
			if !ofCall(of) || source.Values[i].Fixed {
				return nil, fmt.Errorf("with: %s can't be {%s}", name, of)
			}
		}
		st.with[name] = text
	}
	for _, v := range source.Values {
		if st.with[v.Name] == "" {
			if st.with[v.Name] = v.Default; v.Default == "" {
				return nil, fmt.Errorf("with: %s is missing, %s", v.Name, v.About)
			}
		}
		if text := st.with[v.Name]; len(names(text)) == 0 && !v.form.MatchString(text) {
			return nil, fmt.Errorf("with: %s is %q, which doesn't have the form %s", v.Name, text, v.Form)
		}
	}
	if set.AbsentAfter != 0 && set.AbsentAfter < source.AbsentAfter {
		return nil, fmt.Errorf("absent_after: %v is shorter than the %v in which %s may not have found a call yet", set.AbsentAfter, source.AbsentAfter, source.Name)
	}
	if source.Database != (set.Query != "") || source.Database && set.URL != "" {
		return nil, errors.New("query: it is for sources that are databases, and they need it; their URL is in secret_file")
	}
	return st, st.address()
}

// address finds out where the source is. Nothing of a call is in it.
func (st *Settler) address() error {
	if st.source.Database {
		if st.set.SecretFile == "" {
			return errors.New("secret_file: it is missing, the file with the URL of the database")
		}
		return nil
	}
	text := st.set.URL
	if text == "" {
		text = fill(st.source.URL, func(name string) string { return st.with[name] }, nil)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("url: it isn't an address such as https://api.example.com")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return errors.New("url: a credential goes there, so it is https, or http to this machine")
	}
	st.base = u
	return nil
}

func loopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// Check reports settings that are wrong. A call that whoever executes it may work on for so long
// can't be absent earlier.
func (s *Settings) Check(timeout time.Duration) error {
	st, err := New(*s)
	if err == nil && st.Absence() > 0 && st.Absence() < timeout {
		err = fmt.Errorf("absent_after: the call may take %v, longer than the %v after which it counts as absent: write a longer time", strictyaml.Duration(timeout), strictyaml.Duration(st.Absence()))
	}
	return err
}

// Absence is how long a call that isn't found may still come; 0 if the source never says that.
func (st *Settler) Absence() time.Duration {
	return time.Duration(max(st.set.AbsentAfter, st.source.AbsentAfter))
}

// Name is whom it asks.
func (st *Settler) Name() string { return st.source.Name }

func (s *Source) asksBy() string {
	var list []string
	for _, v := range s.Values {
		list = append(list, v.Name)
	}
	return strings.Join(list, ", ")
}

// maxSecret is the longest secret, in bytes.
const maxSecret = 64 << 10

func (st *Settler) secret() (string, error) {
	if st.set.SecretFile == "" {
		return "", nil
	}
	data, err := os.ReadFile(st.set.SecretFile)
	text := strings.TrimSpace(string(data))
	if err == nil && (text == "" || len(text) > maxSecret || strings.ContainsAny(text, "\r\n\x00")) {
		err = fmt.Errorf("%s has no secret in one line", st.set.SecretFile)
	}
	return text, err
}

// attribute begins the name of an attribute of a call.
const attribute = "attribute:"

// ofCall reports whether a record can have a value of this name.
func ofCall(name string) bool {
	return slices.Contains([]string{"key", "effect_key", "operation", "tenant"}, name) || strings.HasPrefix(name, attribute)
}

// values fills in the call's own. Nobody can be asked about a call that lacks one.
func (st *Settler) values(held *semel.Record) (map[string]string, error) {
	found := map[string]string{}
	for _, v := range st.source.Values {
		missing := ""
		text := fill(st.with[v.Name], func(name string) (value string) {
			switch of, isAttribute := strings.CutPrefix(name, attribute); {
			case isAttribute:
				value = held.Attributes[of]
			case name == "key":
				value = held.ID.Key
			case name == "operation":
				value = held.ID.Operation
			case name == "tenant":
				value = held.ID.Tenant
			default:
				value = settle.EffectKey(held)
			}
			if value == "" {
				missing = name
			}
			return value
		}, nil)
		switch {
		case missing != "":
			return nil, fmt.Errorf("the record has no %s to ask by", missing)
		case !v.form.MatchString(text) || strings.ContainsAny(text, "*\r\n"):
			return nil, fmt.Errorf("the call's %s doesn't have the form %s, so that %s can't be asked about it", v.Name, v.Form, st.source.Name)
		}
		found[v.Name] = text
	}
	return found, nil
}
