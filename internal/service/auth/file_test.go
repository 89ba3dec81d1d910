package auth_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/service/auth"
)

func TestFilesThatEverybodyCanWriteAreRefused(t *testing.T) {
	name := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(name, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, good := range map[os.FileMode]bool{0o600: true, 0o640: true, 0o644: true, 0o660: true, 0o602: false, 0o666: false, 0o777: false} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		data, err := auth.ReadFile(name, 100)
		if (err == nil) != good || good && string(data) != "secret" || !good && strings.Contains(err.Error(), "secret") {
			t.Errorf("%o: %q, %v", mode, data, err)
		}
	}
	if _, err := auth.ReadFile(name, 5); err == nil {
		t.Error("a file that is too long is read")
	}
	s := jwtSettings(name, "EdDSA")
	if err := os.WriteFile(name, publicPEM(keys().ed.Public()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := auth.New(auth.Settings{JWT: []auth.JWT{s}}); err == nil || !strings.Contains(err.Error(), "everybody") {
		t.Errorf("keys that everybody can change: %v", err)
	}
}
