package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/semelhq/semel"
)

// settingNames are what the level is judged by, in the order in which they are
// shown.
var settingNames = []string{
	"fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names", "transaction_read_only", "pg_is_in_recovery",
}

// Durability is [semel.DurabilityStore.Durability]. The settings are those of the
// sessions of the store, for some can be set for a user or a database.
func (s *Store) Durability(ctx context.Context) (semel.Durability, error) {
	if err := s.usable(ctx); err != nil {
		return semel.Durability{}, err
	}
	var list []string
	for _, name := range settingNames {
		value := "current_setting('" + name + "', true)"
		if name == "pg_is_in_recovery" {
			value = "CASE WHEN pg_is_in_recovery() THEN 'on' ELSE 'off' END"
		}
		list = append(list, "coalesce("+value+", '')")
	}
	settings := map[string]string{}
	err := s.query(ctx, newRareStatement("SELECT "+strings.Join(list, ", ")), func(row [][]byte) error {
		for i, name := range settingNames {
			settings[name] = string(row[i])
		}
		return nil
	})
	if err != nil {
		return semel.Durability{}, fmt.Errorf("pgstore: read the settings: %w", err)
	}
	d := judge(settings)
	if s.kin != "" {
		d.Level = semel.LevelUnknown
		d.Unsafe = append(d.Unsafe, "the database is "+s.kin+": what a commit survives there can't be told from its settings, which only look like PostgreSQL's")
	}
	return d, nil
}

// judge says what settings promise.
func judge(settings map[string]string) semel.Durability {
	d := semel.Durability{Level: semel.LevelDisk}
	for _, name := range settingNames {
		d.Settings = append(d.Settings, semel.Setting{Name: name, Value: settings[name]})
	}
	unsafe := func(name, consequence string) {
		d.Unsafe = append(d.Unsafe, fmt.Sprintf("%s is %q: %s", name, settings[name], consequence))
	}
	standbys := strings.TrimSpace(settings["synchronous_standby_names"]) != ""
	if commit := settings["synchronous_commit"]; standbys && (commit == "on" || commit == "remote_apply") {
		d.Level = semel.LevelReplicated
	}
	if settings["synchronous_commit"] == "off" {
		d.Level = semel.LevelRelaxed
		unsafe("synchronous_commit", "a crash of the server loses what was acknowledged in the last moments, and the right to execute is given twice")
	}
	if settings["fsync"] == "off" {
		d.Level = semel.LevelRelaxed
		unsafe("fsync", "a crash of the machine loses acknowledged records or destroys the database")
	}
	if settings["full_page_writes"] == "off" {
		unsafe("full_page_writes", "a crash of the machine in the middle of a write leaves a page that is part old and part new")
	}
	if settings["pg_is_in_recovery"] == "on" {
		unsafe("pg_is_in_recovery", "the server is a standby, which shows the past and takes no writes")
	} else if settings["transaction_read_only"] == "on" {
		unsafe("transaction_read_only", "nothing can be claimed, so nothing is executed")
	}
	return d
}

// refuseUnsafe fails where the strict profile does not allow the settings.
func (s *Store) refuseUnsafe(ctx context.Context) error {
	d, err := s.Durability(ctx)
	if err != nil {
		return err
	}
	if len(d.Unsafe) == 0 {
		return nil
	}
	return errors.New("the strict profile refuses the server: " + strings.Join(d.Unsafe, "; "))
}
