// Package query parses the queries with which people select records:
//
//	operation:payments.* state:rejected after:2h -principal:tests OR held
//
// Qualifiers are separated by white space. All of them must apply, up to an OR, which begins
// an alternative; (parentheses) group. A minus in front excludes. A word without a qualifier
// is any name of a call; see [lookup.Named].
//
// Put a value with white space in double quotes, with the escapes of a Go string:
// key:"order 1". An asterisk at the end of a key, an operation, a principal or an attribute's
// value, outside of quotes, stands for any text. A quoted value may be empty if that means
// something: tenant:"" selects the records of the empty tenant.
package query

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel/internal/lookup"
	"github.com/semelhq/semel/store"
)

// Qualifiers lists what a query may contain, for help texts.
const Qualifiers = `  tenant:NAME      of one tenant; tenant:"" is the empty one
  principal:NAME   whose keys they are, outside of a scope; NAME* for all of NAME's
  scope:SCOPE      with principal:NAME, in this scope, such as session=s1
  operation:NAME   of one operation; operation:pay* of those that begin so
  key:KEY          with this key; key:KEY* with one that begins so
  call:NAME        of one call, named as a record, in a problem or in a log
  fingerprint:F    with this payload, as fingerprint or payload_hash show it
  attribute:N=V    whose attribute N is V; attribute:N=V* whose N begins with V
  state:STATE      processing, completed, held, or failed and how: rejected,
                   aborted, abandoned
  held             held records only
  unverified       of callers whom nobody verified, known by a credential only
  after:TIME       created at that time or later
  before:TIME      created before that time
  created<1h       created less than an hour ago; created>1h longer ago
  WORD             of a call that has it as any of its names: key, record, reference,
                   execution, order=9911, the request, command, correlation or event id

A minus excludes, as in -state:completed. OR begins an alternative, and (parentheses)
group.

TIME is a date, 2026-01-31 or today, which begins at midnight UTC, a moment as in
2026-01-31T12:00:00Z or 12:00, which is today's in UTC, or how long ago it was: 90s,
15m, 1h, 7d.`

// Error has everything that is wrong with a query.
type Error struct {
	Problems []Problem
}

// Problem is one error in a query.
type Problem struct {
	// Column is the place, counted in characters from 1.
	Column int
	// Message never repeats a value.
	Message string
}

// Error lists all problems, each with its column.
func (e *Error) Error() string {
	var texts []string
	for _, p := range e.Problems {
		texts = append(texts, fmt.Sprintf("column %d: %s", p.Column, p.Message))
	}
	return strings.Join(texts, "; ")
}

// set puts the value of each qualifier into a query, or says why it can't.
var set = map[string]func(q *store.Query, value string) (wrong string){
	"tenant": func(q *store.Query, v string) string { q.Tenant = &v; return "" },
	// What scope: has put there comes after the principal.
	"principal": func(q *store.Query, v string) string { q.Principal = v + q.Principal; return "" },
	"scope":     func(q *store.Query, v string) string { q.Principal += store.ScopeMark + v; return "" },
	"operation": func(q *store.Query, v string) string { q.Operation = v; return "" },
	"key":       func(q *store.Query, v string) string { q.Key = v; return "" },
	// These are what clients write for key:KEY* whatever KEY has.
	"principal_prefix": func(q *store.Query, v string) string { q.PrincipalPrefix = v; return "" },
	"operation_prefix": func(q *store.Query, v string) string { q.OperationPrefix = v; return "" },
	"key_prefix":       func(q *store.Query, v string) string { q.KeyPrefix = v; return "" },
	"call": func(q *store.Query, v string) string {
		named, ok := lookup.Name(v)
		switch {
		case !ok:
			return "this isn't the name of a call: use the id of a record or an execution, a problem's reference, instance or status URL, or record from a log line"
		case q.Tenant != nil || q.Principal != "" || q.Operation != "" || q.Key != "" || q.Digest != "":
			return "call already selects tenant, principal, operation and key: leave those out"
		}
		q.Tenant, q.Principal, q.Operation, q.Key, q.Digest = named.Tenant, named.Principal, named.Operation, named.Key, named.Digest
		return ""
	},
	"digest": func(q *store.Query, v string) string {
		if !lookup.IsDigest(v) {
			return "a digest is up to 64 hexadecimal digits in small letters"
		}
		q.Digest = v
		return ""
	},
	"fingerprint": func(q *store.Query, v string) string {
		if q.Fingerprint.UnmarshalText([]byte(v)) != nil || q.Fingerprint.IsZero() {
			return "a fingerprint is a number, a colon and 64 hexadecimal digits"
		}
		return ""
	},
	"attribute": func(q *store.Query, v string) string { return setAttribute(&q.Attributes, q, v) },
	// attribute_prefix is what clients write for attribute:N=V* whatever V has.
	"attribute_prefix": func(q *store.Query, v string) string { return setAttribute(&q.AttributePrefixes, q, v) },
	"state": func(q *store.Query, v string) string {
		if v == "held" { // as lists show it
			q.Held = true
			return ""
		}
		if q.State.UnmarshalText([]byte(v)) == nil {
			return ""
		}
		if q.Disposition.UnmarshalText([]byte(v)) == nil {
			q.State = store.Failed
			return ""
		}
		return "the states are processing, completed, held and failed, of which some are rejected, aborted or abandoned"
	},
	"disposition": func(q *store.Query, v string) string {
		if q.Disposition.UnmarshalText([]byte(v)) != nil {
			return "there is no such disposition"
		}
		return ""
	},
	"held": func(q *store.Query, v string) string {
		return setFlag(&q.Held, v, "held takes no value; you can't select records that aren't held")
	},
	"unverified": func(q *store.Query, v string) string {
		return setFlag(&q.Unverified, v, "unverified takes no value; a minus selects the others")
	},
	"after":  func(q *store.Query, v string) string { return setTime(&q.After, v) },
	"before": func(q *store.Query, v string) string { return setTime(&q.Before, v) },
}

func setFlag(flag *bool, v, wrong string) string {
	if *flag = v == "true"; *flag {
		return ""
	}
	return wrong
}

func setAttribute(list *store.Attributes, q *store.Query, v string) string {
	name, value, ok := strings.Cut(v, "=")
	_, exact := q.Attributes[name]
	_, prefix := q.AttributePrefixes[name]
	if !ok || name == "" || exact || prefix {
		return "an attribute is NAME=VALUE, each name once"
	}
	if *list == nil {
		*list = store.Attributes{}
	}
	(*list)[name] = value
	return ""
}

// setAge bounds the time of creation by a duration before now: created<1h.
func setAge(q *store.Query, op byte, value string) string {
	age, ok := parseAge(value)
	bound := &q.After
	if op == '>' {
		bound = &q.Before
	}
	switch {
	case !ok:
		return "an age is a duration such as 90s, 15m, 1h or 7d"
	case *bound != 0:
		return "this bound is given twice"
	}
	*bound = store.InstantOf(time.Now().Add(-age))
	return ""
}

// parseAge reads a duration, in which d is a day of 24 hours.
func parseAge(value string) (age time.Duration, ok bool) {
	age, err := time.ParseDuration(value)
	if days, found := strings.CutSuffix(value, "d"); found {
		n, derr := strconv.ParseUint(days, 10, 16)
		age, err = time.Duration(n)*24*time.Hour, derr
	}
	return age, err == nil && age > 0
}

// names are the qualifiers, in the order in which errors list them.
var names = []string{"operation", "state", "key", "call", "principal", "scope", "tenant", "fingerprint", "attribute", "before", "after", "created", "held", "unverified"}

// Names are what qualifiers of a query begin with, for completion.
func Names() []string {
	words := []string{"created<", "created>", "held", "unverified"}
	for _, name := range names {
		if name != "created" && name != "held" && name != "unverified" {
			words = append(words, name+":")
		}
	}
	return words
}

// States are the states that a query can select, for completion.
func States() []string {
	return []string{"processing", "completed", "held", "failed", "rejected", "aborted", "abandoned"}
}

func setTime(at *store.Instant, value string) string {
	if age, ok := parseAge(value); ok {
		*at = store.InstantOf(time.Now().Add(-age))
		return ""
	}
	today := time.Now().UTC().Format(time.DateOnly)
	if _, err := time.Parse("15:04", value); value == "today" {
		value = today
	} else if err == nil {
		value = today + "T" + value + ":00Z"
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		t, err := time.Parse(layout, value)
		if err != nil {
			continue
		}
		if t.Equal(time.Unix(0, 0)) {
			t = time.Unix(0, 1) // the zero Instant means none; no record was created then
		}
		*at = store.InstantOf(t)
		if !at.Time().Equal(t) {
			return "the time is too far away: the years are 1678 to 2261"
		}
		return ""
	}
	return "a time is a date such as 2026-01-31, today, a moment such as 2026-01-31T12:00:00Z, 12:00 of today or an age such as 1h"
}
