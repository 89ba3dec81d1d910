package pgstore

import (
	"errors"
	"strings"
)

// kinOf names the engine that speaks PostgreSQL's protocol, by what it says of its
// version; empty for PostgreSQL itself.
//
// They carry out the statements that claims and outcomes are made of. What same
// transactions, evidence and the level of durability rest on they lack, or have under
// the same names and with another meaning, so these refuse.
func kinOf(version string) string {
	switch {
	case strings.Contains(version, "CockroachDB"):
		return "CockroachDB"
	case strings.Contains(version, "-YB-"), strings.Contains(version, "Yugabyte"):
		return "YugabyteDB"
	}
	return ""
}

// RefusesEvidence says why the store can't keep the evidence log, or is nil. The
// engine and the service ask it.
func (s *Store) RefusesEvidence() error {
	if s.kin == "" {
		return nil
	}
	return errors.New("the database is " + s.kin + ", where the numbers of the evidence log can't be given in the order of commits")
}
