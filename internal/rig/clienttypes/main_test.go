package main

import (
	"os"
	"path/filepath"
	"testing"
)

// The types of the clients are those of the API's description.
func TestTypesAreCurrent(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	text, err := os.ReadFile(filepath.Join(root, "internal", "service", "api", "openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := generate(text)
	if err != nil || len(files) != 2 {
		t.Fatal(len(files), err)
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != want {
			t.Errorf("%s is not made from the API's description: run go run ./internal/rig/clienttypes (%v)", name, err)
		}
	}
}
