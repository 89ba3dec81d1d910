package ids

import "testing"

func TestEvidenceIsReadInAnyForm(t *testing.T) {
	for body, want := range map[string]string{
		`[{"decision":"first_seen","outcome_ref":"sha256:aa"}]`:                                                         "sha256:aa",
		`{"entries":[{"n":1,"leaf":{"payload":{"decision":"first_seen"}},"opening":{"outcome_sha256":"aa"}}],"next":2}`: "sha256:aa",
		`{"entries":[{"leaf":{"payload":{"decision":"first_seen"}},"opening":null}]}`:                                   "",
	} {
		list := artifacts(body)
		if len(list) != 1 || list[0]["decision"] != "first_seen" || want != "" && list[0]["outcome_ref"] != want {
			t.Errorf("%s is read as %v", body, list)
		}
	}
	if list := artifacts("no JSON"); list != nil {
		t.Errorf("it is read as %v", list)
	}
}
