package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
)

func TestForrst(t *testing.T) {
	c, origins, err := loadCorpus(t, "testdata/good/forrst.yaml")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("its operations take no calls over the execution API, and replay failures", func(t *testing.T) {
		for _, op := range c.Operations {
			if c.ByAPI(op.Name) || op.OnFailure != semel.ReplayFailure {
				t.Errorf("%s: by API %t, on_failure %s", op.Name, c.ByAPI(op.Name), op.OnFailure)
			}
		}
		for i, want := range []string{"default (financial)", "default (profile forrst)"} {
			if from := origins.Of(fmt.Sprintf("operations[%d].on_failure", i)).String(); from != want {
				t.Error(from)
			}
		}
	})
	t.Run("callers without a credential are taken as on routes", func(t *testing.T) {
		if c.Forrst[0].Anonymous != semelhttp.AnonymousLoopback || c.Forrst[1].Anonymous != semelhttp.AnonymousRefuse {
			t.Errorf("%s, %s", c.Forrst[0].Anonymous, c.Forrst[1].Anonymous)
		}
	})
	t.Run("the secret of hashes is what is in its file", func(t *testing.T) {
		key, err := c.Forrst[0].HashKey()
		if err != nil || len(key) < minHashKey {
			t.Errorf("%q, %v", key, err)
		}
		if key, err := c.Forrst[1].HashKey(); key != nil || err != nil {
			t.Errorf("without a file: %q, %v", key, err)
		}
	})
	t.Run("a schema without a version is for versions that have none of their own", func(t *testing.T) {
		fn := &c.Forrst[0].Functions[0]
		for version, want := range map[string]string{"1.0.0": `"minimum"`, "2.0.0-beta.1": `"currency"`} {
			if text, err := fn.ReadArguments(version); err != nil || !strings.Contains(string(text), want) {
				t.Errorf("%s: %s, %v", version, text, err)
			}
		}
		if text, err := c.Forrst[0].Functions[1].ReadArguments("1.0.0"); text != nil || err != nil {
			t.Errorf("a function without a schema: %s, %v", text, err)
		}
	})
}
