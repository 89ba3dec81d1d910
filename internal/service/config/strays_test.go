package config

import (
	"slices"
	"testing"
)

func TestStrays(t *testing.T) {
	got := Strays([]string{
		"SEMEL_STORE_URLL=pebble:x", "SEMEL_STORE_COLOUR=red", "SEMEL_STORE_URL=memory:", "SEMEL_TOKEN=x", "SEMEL_URL=x", "SEMEL_CONTEXT=x", "PATH=/bin",
		"SEMEL_SERVICE_HOST=10.0.0.1", "SEMEL_PORT_8480_TCP_PROTO=tcp", "SEMEL_REQUIRE_SERVICES=1", "SEMEL_LISTEN_ADRESS=:1", "SEMEL_PURGE_PER_SECOND=5",
	})
	want := []string{
		"SEMEL_LISTEN_ADRESS sets nothing, did you mean SEMEL_LISTEN_ADDRESS?",
		"SEMEL_PURGE_PER_SECOND sets nothing, remove it: up to 1000 records are removed a second",
		"SEMEL_STORE_COLOUR sets nothing, did you mean SEMEL_STORE_URL?",
		"SEMEL_STORE_URLL sets nothing, did you mean SEMEL_STORE_URL?",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
