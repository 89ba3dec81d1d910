package cli

import (
	"os"
	"testing"

	"github.com/semelhq/semel/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
