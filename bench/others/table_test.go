package others

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/check"
)

// groups are the groups of requirements, in the order in which they are judged.
func (r *judged) groups() (names []string) {
	for _, id := range r.verdicts {
		if group := r.worst[id].Group; !slices.Contains(names, group) {
			names = append(names, group)
		}
	}
	return names
}

// broken are the requirements of a group that one breaks, and whether it promises one of them.
func (r *judged) broken(group string) (ids []string, promised bool) {
	for _, id := range r.verdicts {
		if v := r.worst[id]; v.Group == group && v.Outcome == check.Broken {
			ids = append(ids, id)
			_, declined := r.declined.of(id)
			promised = promised || !declined
		}
	}
	return ids, promised
}

// cell says how one does with a group.
func (r *judged) cell(group string) string {
	ids, promised := r.broken(group)
	link := "(../bench/others/testdata/" + r.slug() + ".md#" + group + ")"
	switch {
	case promised:
		return "**[red]" + link + "**"
	case len(ids) > 0:
		return "[not promised]" + link
	}
	if replay, _ := r.broken("replay"); len(replay) > 0 {
		return "–" // the check tries nothing else
	}
	seen := func(v check.Verdict) bool { return v.Group == group && v.Outcome != check.Unseen }
	if slices.ContainsFunc(slices.Collect(maps.Values(r.worst)), seen) {
		return "kept"
	}
	return "–"
}

// slug is the name in the names of files.
func (r *judged) slug() string {
	return strings.ToLower(strings.NewReplacer(" ", "-", "'", "", ",", "").Replace(r.name))
}

// title is the name with the version.
func (r *judged) title() string {
	name, more, _ := strings.Cut(r.name, ", ")
	if r.version != "" {
		name += " " + r.version
	}
	if more != "" {
		name += ", " + more
	}
	return name
}

const intro = `# Beside others

- **For** people who choose what keeps a retried request from charging twice.
- **Afterwards** you know what each of them does in each case, by its own promise and by a test.

` + "[`semel check http`](check.md)" + ` judged what people use today, and Semel beside it, by draft-ietf-httpapi-idempotency-key-header-07. ` + "`make prove-others`" + ` makes the page, and fails if it finds something else.

Each guards the same small shop, is set up as its own documentation says, and runs in a process that the check may kill. **A requirement that the documentation doesn't promise isn't held against a product**: it is marked so, with what happens instead and the source. Red is what breaks a promise.

%s
Each cell is a [group of requirements](check.md#the-groups). *kept* means that the check found no fault; *not promised* and *red* lead to what it saw; *–* wasn't judged, because the check had no way to see it or because a group that it rests on isn't kept. Some faults come by chance, so each was checked %d times from nothing, with the seeds 1 to %d, and what was red once is red. Expiry isn't judged: answers are kept from minutes to days.

## One by one
`

// document is docs/others.md.
func document(results []*judged) string {
	var table, one strings.Builder
	groups := slices.DeleteFunc(results[0].groups(), func(group string) bool { return group == "expiry" })
	fmt.Fprintf(&table, "| | %s |\n|%s\n", strings.Join(groups, " | "), strings.Repeat("---|", len(groups)+1))
	for _, r := range results {
		name := r.title()
		table.WriteString("| " + name + " |")
		for _, group := range groups {
			table.WriteString(" " + r.cell(group) + " |")
		}
		table.WriteString("\n")
		fmt.Fprintf(&one, "\n### %s\n\n%s\n", name, r.setup)
		r.list(&one)
	}
	return fmt.Sprintf(intro, table.String(), *rounds, *rounds) + one.String()
}

// list tells of each requirement that isn't kept.
func (r *judged) list(b *strings.Builder) {
	first := true
	for _, group := range r.groups() {
		ids, _ := r.broken(group)
		for _, id := range ids {
			if first {
				b.WriteString("\n| requirement | | |\n|---|---|---|\n")
				first = false
			}
			how := "red"
			why, declined := r.declined.of(id)
			if declined {
				how = "not promised"
			} else {
				why, _ = r.promised.of(id)
			}
			fmt.Fprintf(b, "| `%s`: %s | %s | %s |\n", id, r.worst[id].Text, how, why)
		}
	}
	if first {
		b.WriteString("\nNo fault was found.\n")
	}
}

// keepTranscript writes what was seen, unless the file tells of the same requirements: keys and
// times differ each time.
func (r *judged) keepTranscript(t *testing.T) {
	var b, heads strings.Builder
	fmt.Fprintf(&b, "# What `semel check http` saw of %s\n", r.title())
	for _, group := range r.groups() {
		ids, _ := r.broken(group)
		if len(ids) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n", group)
		for _, id := range ids {
			v := r.worst[id]
			head := fmt.Sprintf("\n### %s: %s\n", id, v.Text)
			heads.WriteString(head)
			fmt.Fprintf(&b, "%s\nIt rests on %s. Seen: %s.\n\n```sh\n%s\n```\n\n```text\n", head, v.Rests, v.Saw, strings.Join(v.Reproduce, "\n"))
			for _, x := range v.Transcript[:min(len(v.Transcript), shown)] {
				fmt.Fprintf(&b, "%6.3f s  %s -> %s%s\n", x.At, line(x.Request), line(x.Answer), x.Cut)
			}
			b.WriteString("```\n")
		}
	}
	file := filepath.Join("testdata", r.slug()+".md")
	if heads.Len() == 0 {
		_ = os.Remove(file) // it may never have been there
		return
	}
	old, _ := os.ReadFile(file)
	var was strings.Builder
	for l := range strings.Lines(string(old)) {
		if strings.HasPrefix(l, "### ") {
			was.WriteString("\n" + l)
		}
	}
	if was.String() == heads.String() {
		return
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o666); err != nil {
		t.Error(err)
	}
}

// How many deliveries of a transcript are kept, and how much of a body.
const shown, shownBody = 6, 90

// line is a message as one line: its first, and its body.
func line(message string) string {
	head, body, _ := strings.Cut(message, "\n\n")
	head, _, _ = strings.Cut(head, "\n")
	if body = strings.TrimSpace(strings.ReplaceAll(body, "\n", " ")); len(body) > shownBody {
		body = body[:shownBody] + "…"
	}
	return strings.TrimSpace(head + " " + body)
}
