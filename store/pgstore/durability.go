package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/semelhq/semel/store"
)

// settingNames are the settings that decide the level, in the order of the list.
var settingNames = []string{
	"fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names", "transaction_read_only", "pg_is_in_recovery",
}

// Durability is [store.DurabilityReporter.Durability]. It reads the settings in a session of
// the store, because some can be set for a user or a database.
func (s *Store) Durability(ctx context.Context) (store.Durability, error) {
	rows, err := query(ctx, s, func(v values) (store.Setting, error) {
		return store.Setting{Name: string(v[0]), Value: string(v[1])}, nil
	}, newStatement("SELECT name, coalesce(current_setting(name, true), '') FROM unnest($1::text[]) AS name"+
		" UNION ALL SELECT 'pg_is_in_recovery', CASE WHEN pg_is_in_recovery() THEN 'on' ELSE 'off' END", array("text", settingNames)))
	if err != nil {
		return store.Durability{}, fmt.Errorf("pgstore: read the settings: %w", err)
	}
	settings := map[string]string{}
	for _, r := range rows {
		settings[r.Name] = r.Value
	}
	d := judge(settings)
	if s.database.engine != "" {
		d.Level = store.LevelUnknown
		d.Unsafe = append(d.Unsafe, "the database is "+s.database.engine+": what a commit survives there can't be told from its settings, which only look like PostgreSQL's")
	}
	return d, nil
}

// CheckWrites is [store.WriteChecker.CheckWrites]. It uses a connection for reads, so it
// doesn't fail just because writes wait for a standby. A role that has lost a right can't do
// everything that calls need, so that is an [ErrRights].
func (s *Store) CheckWrites(ctx context.Context) error {
	readOnly, err := one(query(ctx, s, text, statement{sql: "SELECT current_setting('transaction_read_only')"}))
	switch {
	case err != nil:
		return fmt.Errorf("pgstore: ask whether writes are taken: %w", err)
	case readOnly == "on":
		return errors.New("pgstore: the server is read-only: it is a standby, or transaction_read_only is set")
	}
	if err := s.checkRights(ctx); err != nil {
		return fmt.Errorf("pgstore: %w", err)
	}
	return nil
}

// judge says what the settings guarantee.
func judge(settings map[string]string) store.Durability {
	d := store.Durability{Level: store.LevelDisk}
	for _, name := range settingNames {
		d.Settings = append(d.Settings, store.Setting{Name: name, Value: settings[name]})
	}
	if commit := settings["synchronous_commit"]; strings.TrimSpace(settings["synchronous_standby_names"]) != "" && (commit == "on" || commit == "remote_apply") {
		d.Level = store.LevelReplicated
	}
	if settings["synchronous_commit"] == "off" || settings["fsync"] == "off" {
		d.Level = store.LevelRelaxed
	}
	for _, u := range []struct{ name, value, consequence string }{
		{"synchronous_commit", "off", "a crash of the server loses what was acknowledged in the last moments, and the right to execute is given twice"},
		{"fsync", "off", "a crash of the machine loses acknowledged records or destroys the database"},
		{"full_page_writes", "off", "a crash of the machine in the middle of a write leaves a page that is part old and part new"},
		{"pg_is_in_recovery", "on", "the server is a standby, which shows the past and takes no writes"},
		{"transaction_read_only", "on", "nothing can be claimed, so nothing is executed"},
	} {
		standby := u.name == "transaction_read_only" && settings["pg_is_in_recovery"] == "on" // says it all
		if settings[u.name] == u.value && !standby {
			d.Unsafe = append(d.Unsafe, fmt.Sprintf("%s is %q: %s", u.name, u.value, u.consequence))
		}
	}
	return d
}

// kinOf recognizes, by its version text, another engine that speaks PostgreSQL's protocol;
// empty for PostgreSQL itself. Such engines can run the statements for claims and outcomes. But
// transactions of the application, evidence and the level of durability need something that
// they lack, or that means something else there, so the store refuses those.
func kinOf(version string) string {
	switch {
	case strings.Contains(version, "CockroachDB"):
		return "CockroachDB"
	case strings.Contains(version, "-YB-"), strings.Contains(version, "Yugabyte"):
		return "YugabyteDB"
	}
	return ""
}

// Extras is [store.Store.Extras].
func (s *Store) Extras() store.Extras {
	x := store.Extras{Due: s, Purge: s, Watch: s, Search: s, Durability: s, Writes: s, Archive: s, Evidence: s, Clock: s, Queues: s}
	if s.database.engine != "" {
		x.Evidence, x.NoEvidence = nil, errors.New("the database is "+s.database.engine+", where the numbers of the evidence log can't be given in the order of commits")
	}
	return x
}
