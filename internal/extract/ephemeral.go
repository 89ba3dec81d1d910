package extract

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/keytemplate"
	"github.com/semelhq/semel/internal/selector"
)

// ephemeralNames are common names of body members that differ in each delivery of a call. A key
// template may use none of them.
var ephemeralNames = []string{"timestamp", "requested_at", "request_id", "nonce", "attempt"}

// Ephemeral warns if a template makes the key from a JSON body whose other members may differ
// between two deliveries of one call, so that the second would be a conflict. It names the
// members that the spec reads for an attribute. It knows nothing about the rest of a body, so
// it lists the usual names of such members.
func (s *Spec) Ephemeral() (list []string) {
	inJSON := func(text string) bool {
		v, err := selector.Parse(text, selector.Values)
		return err == nil && v.InJSON()
	}
	made := slices.Collect(maps.Values(s.Template.Values))
	if !slices.ContainsFunc(made, inJSON) || len(s.Only) > 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.Attributes)) {
		text := s.Attributes[name]
		pointer, ok := strings.CutPrefix(text, string(selector.JSON)+":")
		ignored := slices.ContainsFunc(s.Ignore, func(i string) bool { return strings.HasPrefix(pointer+"/", i+"/") })
		if _, found := keytemplate.LintName(pointer[strings.LastIndexByte(pointer, '/')+1:]); ok && found && !ignored && !slices.Contains(made, text) {
			list = append(list, fmt.Sprintf("the key leaves %s out, which by its name is another one in each delivery, so a repeated call is a conflict: add %[1]s to fingerprint.ignore", pointer))
		}
	}
	if len(list)+len(s.Ignore) > 0 {
		return list
	}
	return []string{fmt.Sprintf("what the key leaves out of a body is still compared, so a member that is another one in each delivery (%s) makes a repeated call a conflict: "+
		"if bodies have one, add it to fingerprint.ignore, as in ignore: [/%s]", strings.Join(ephemeralNames, ", "), ephemeralNames[1])}
}
