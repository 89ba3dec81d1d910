package pebblestore

import (
	"context"

	"github.com/semelhq/semel"
)

// Durability is [semel.DurabilityStore.Durability]. There is no setting that makes
// the store less durable: every answer waits for the disk.
func (s *Store) Durability(context.Context) (semel.Durability, error) {
	return semel.Durability{Level: semel.LevelDisk, Settings: []semel.Setting{{Name: "sync", Value: "every write"}}}, nil
}

var _ semel.DurabilityStore = (*Store)(nil)
