package extract

import (
	"testing"

	"github.com/semelhq/semel/internal/keytemplate"
)

func TestNamesThatAWarningSuggests(t *testing.T) {
	for _, name := range ephemeralNames {
		if _, found := keytemplate.LintName(name); !found {
			t.Errorf("a key template may have %s, so the warning must not name it", name)
		}
	}
}
