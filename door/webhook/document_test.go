package webhook

import (
	"os"
	"regexp"
	"testing"
)

// TestDocumentedFiles loads the sources and machines that the documents show.
func TestDocumentedFiles(t *testing.T) {
	text, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, m := range regexp.MustCompile("(?s)<!-- (source|machine) -->\n```yaml\n(.*?)```").FindAllSubmatch(text, -1) {
		kind := string(m[1])
		kinds[kind]++
		if kind == "source" {
			_, err = Load("docs/webhooks.md", m[2])
		} else {
			_, err = LoadMachine("docs/webhooks.md", m[2])
		}
		if err != nil {
			t.Error(err)
		}
	}
	if kinds["source"] != 2 || kinds["machine"] != 1 {
		t.Errorf("docs/webhooks.md shows %v", kinds)
	}
}
