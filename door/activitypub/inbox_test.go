package activitypub_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/activitypub"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// note is an activity of bob's, in JSON, with further members.
func note(id string, more ...string) string {
	return fmt.Sprintf(`{"id":"https://there.example/a/%s","type":"Create","actor":%q,"object":{"type":"Note","content":"hello"}%s}`, id, bob, strings.Join(more, ""))
}

func TestAnActivityIsHandledOnce(t *testing.T) {
	clause.Proves(t, "VUL-01-001", "VUL-02-001", "VUL-02-003", "VUL-03-001", "VUL-05-001")
	w := newWorld(t, nil)
	w.want(202, "queued for processing", note("1"))
	if got := w.inboxes("https://there.example/a/1"); len(got) > 0 {
		t.Error("it was handled before its 202")
	}
	for range 3 {
		w.want(202, "already queued for processing", note("1"))
	}
	// As another server may spell it when it tries again.
	w.want(202, "already queued for processing", ` {"type": "Create", "object": {"content": "hello", "type": "Note"},  "actor": "`+bob+`", "id": "https://there.example/a/1"}`)
	w.want(202, "queued for processing", note("2"))
	for _, err := range w.work() {
		if err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{"1", "2"} {
		if got := w.inboxes("https://there.example/a/" + id); !slices.Equal(got, []string{"alice"}) {
			t.Errorf("%s was handled in %q", id, got)
		}
	}
	a := w.handled[0]
	if a.Tenant != "fedi" || a.Actor != bob || a.Signed || a.Type != "Create" || a.Inbox != "alice" || string(a.Body) != note("1") ||
		a.Delivery == "" || a.Delivery == w.handled[1].Delivery || a.ReceivedAt.IsZero() || a.Correlation != a.ID {
		t.Errorf("%+v", a)
	}
}

// A list of one is that one, and null in a list is nobody, as JSON-LD reads them.
func TestListsAreReadAsInJSONLD(t *testing.T) {
	w := newWorld(t, func(o *activitypub.Options) { o.Verifier = signedBy{} })
	for id, members := range map[string]string{
		"1": `"type":"Create","actor":["` + bob + `"],"object":["https://there.example/o"],"cc":[null]`,
		"2": `"type":["Create"],"actor":[null,{"id":"` + bob + `"}],"object":{"type":"Note"},"to":["` + alice + `",null],"cc":[]`,
		"3": `"type":"Delete","actor":"` + bob + `","object":["` + bob + `"],"to":null`,
	} {
		w.want(202, "queued for processing", `{"id":"https://there.example/a/`+id+`",`+members+`}`, "Signed-By", bob)
	}
	for _, err := range w.work() {
		if err != nil {
			t.Error(err)
		}
	}
	for _, a := range w.handled {
		if a.Actor != bob || !a.Signed || a.Type != "Create" && a.Type != "Delete" {
			t.Errorf("%+v", a)
		}
	}
	if len(w.handled) != 3 {
		t.Errorf("%d are handled", len(w.handled))
	}
	// The key of an actor who is gone is gone, too: what deletes them needs none.
	w.want(202, "", `{"id":"https://there.example/a/4","type":"Delete","actor":"`+bob+`","object":[null,"`+bob+`"]}`, "Signed-By", "gone")
}

func TestDuplicatesAtOnce(t *testing.T) {
	clause.Proves(t, "VUL-02-001")
	w := newWorld(t, nil)
	var all sync.WaitGroup
	fresh := make(chan string, 50)
	for range cap(fresh) {
		all.Go(func() {
			rec := w.post("/actors/alice/inbox", note("1"))
			if rec.Code != 202 {
				t.Errorf("%d %s", rec.Code, rec.Body)
			}
			fresh <- rec.Body.String()
		})
	}
	all.Wait()
	close(fresh)
	n := 0
	for body := range fresh {
		if strings.Contains(body, `"queued`) {
			n++
		}
	}
	w.work()
	if got := w.inboxes("https://there.example/a/1"); n != 1 || len(got) != 1 {
		t.Errorf("%d were told that it is queued, and it was handled %d times", n, len(got))
	}
}

// TestWhatIsRefused has everything that a sender is refused for.
func TestWhatIsRefused(t *testing.T) {
	clause.Proves(t, "VUL-01-001", "VUL-IE-001")
	w := newWorld(t, func(o *activitypub.Options) {
		o.Verifier, o.MaxBody, o.Types = signedBy{}, 1000, []string{"Create", "Accept", "Add", "Like"}
		o.Policies = activitypub.Policies{
			{Host: "bad.example", Refuse: true}, {Host: "*.bad.example", Refuse: true}, {Host: "there.example", Unsigned: true},
		}
	})
	for name, c := range map[string]struct {
		status int
		part   string
		body   string
		header []string
	}{
		"no JSON":              {400, "isn't a JSON object", `{"id":`, nil},
		"a list":               {400, "isn't a JSON object", `[]`, nil},
		"null":                 {400, "isn't a JSON object", `null`, nil},
		"no id":                {400, "has no id", `{"type":"Create"}`, nil},
		"id is a number":       {400, "has no id", `{"type":"Create","id":7}`, nil},
		"bare UUID":            {400, "isn't a full URI", `{"type":"Create","id":"8e03978e-40d5-43dd-bc93-6894a57f9324"}`, nil},
		"path":                 {400, "isn't a full URI", `{"type":"Create","id":"/a/1"}`, nil},
		"space":                {400, "isn't a full URI", `{"type":"Create","id":"https://there.example/a b"}`, nil},
		"with a user":          {400, "isn't a full URI", `{"type":"Create","id":"https://u@there.example/a"}`, nil},
		"twice":                {400, "strict JSON", `{"type":"Like","id":"https://there.example/a","id":"https://there.example/b"}`, nil},
		"no type":              {400, "no type", `{"id":"https://there.example/a"}`, nil},
		"actor":                {400, "actor", `{"id":"https://there.example/a","type":"Like","actor":7}`, nil},
		"relative actor":       {400, "actor", `{"id":"https://there.example/a","type":"Like","actor":"bob"}`, nil},
		"no object":            {422, "object", `{"id":"https://there.example/a","type":"Accept"}`, nil},
		"null object":          {422, "object", `{"id":"https://there.example/a","type":"Create","object":null}`, nil},
		"no target":            {422, "target", `{"id":"https://there.example/a","type":"Add","object":"https://there.example/o"}`, nil},
		"another type":         {422, "not handled here", `{"id":"https://there.example/a","type":"Follow","actor":"` + bob + `"}`, nil},
		"another case of id":   {400, "ID", `{"id":"https://there.example/a","ID":"https://there.example/b","type":"Like"}`, nil},
		"another case":         {400, "Actor", `{"id":"https://there.example/a","type":"Like","Actor":"https://else.example/u"}`, []string{"Signed-By", bob}},
		"two actors":           {400, "ID", `{"id":"https://there.example/a","type":"Like","actor":{"id":"https://else.example/u","ID":"` + bob + `"}}`, []string{"Signed-By", bob}},
		"two ids in JSON-LD":   {400, "@id", `{"id":"https://there.example/a","type":"Like","actor":{"id":"` + bob + `","@id":"https://else.example/u"}}`, []string{"Signed-By", bob}},
		"two in JSON-LD":       {400, "as:actor", `{"id":"https://there.example/a","type":"Like","actor":"` + bob + `","as:actor":"https://else.example/u"}`, []string{"Signed-By", bob}},
		"two by its URI":       {400, "activitystreams#actor", `{"id":"https://there.example/a","type":"Like","https://www.w3.org/ns/activitystreams#actor":{"@id":"https://else.example/u"}}`, []string{"Signed-By", bob}},
		"actors in a list":     {400, "actor", `{"id":"https://there.example/a","type":"Like","actor":["` + bob + `","https://there.example/u"]}`, []string{"Signed-By", bob}},
		"types in a list":      {400, "no type", `{"id":"https://there.example/a","type":["Like","Create"]}`, nil},
		"another's in a list":  {403, "another actor", `{"id":"https://there.example/a","type":"Like","actor":["` + bob + `"]}`, []string{"Signed-By", bob + "2"}},
		"empty object":         {422, "object", `{"id":"https://there.example/a","type":"Create","object":[]}`, nil},
		"object of nothing":    {422, "object", `{"id":"https://there.example/a","type":"Create","object":[null]}`, nil},
		"two recipients":       {400, "ID", note("a", `,"cc":[{"id":"https://a.example","ID":"https://b.example"}]`), nil},
		"recipient":            {400, "member cc names", note("a", `,"cc":[{}]`), nil},
		"for others":           {400, "for others", note("a", `,"to":"https://here.example/actors/carol"`), nil},
		"another instance":     {401, "isn't signed", `{"id":"https://else.example/a","type":"Like","actor":"https://else.example/u"}`, nil},
		"forged":               {401, "signature is wrong", note("a"), []string{"Signed-By", "forger"}},
		"another's":            {403, "another actor", note("a"), []string{"Signed-By", bob + "2"}},
		"key gone":             {403, "410", note("a"), []string{"Signed-By", "gone"}},
		"key unknown":          {503, "fetched", note("a"), []string{"Signed-By", "nobody knows"}},
		"blocked":              {403, "instance", `{"id":"https://bad.example/a","type":"Like","actor":"https://bad.example/u"}`, []string{"Signed-By", "https://bad.example/u"}},
		"below what's blocked": {403, "instance", `{"id":"https://x.bad.example/a","type":"Like","actor":"https://x.bad.example/u"}`, nil},
		"JSON only":            {415, "content type", note("a"), []string{"Content-Type", "application/json"}},
		"no profile":           {415, "content type", note("a"), []string{"Content-Type", "application/ld+json"}},
		"compressed":           {415, "content type", note("a"), []string{"Content-Encoding", "gzip"}},
		"too long":             {413, "1000 bytes", note("a", `,"x":"`+strings.Repeat("x", 1000)+`"`), nil},
		"id of another server": {422, "another server", `{"id":"https://else.example/a","type":"Like","actor":"` + bob + `"}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			w.want(c.status, c.part, c.body, c.header...)
		})
	}
	w.t = t
	w.wantAt("/actors/nobody/inbox/", 404, "no such actor", note("a"))
	w.wantAt("/actors/nobody/inbox/", 404, "no such actor", note("a", `,"to":"`+alice+`"`)) // and not that it is for others
	w.wantAt("/actors/alice/outbox/", 404, "no such actor", note("a"))
	w.wantAt("/inbox", 404, "no such actor", note("a", `,"to":"https://here.example/actors/nobody"`))
	if rec := w.post("/actors/alice/inbox/", note("a"), "Signed-By", "nobody knows"); rec.Header().Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if errs := w.work(); len(errs) > 0 {
		t.Errorf("%d activities were taken", len(errs))
	}
	// Nothing of the refused ones is in the way of the real one.
	w.want(202, "queued", note("a"), "Content-Type", `application/ld+json; profile="https://www.w3.org/ns/activitystreams"`)
	for _, line := range w.logs.find("activity refused") {
		if line["level"] != "WARN" || line["error"] == "" {
			t.Errorf("logged %v", line)
		}
	}
}

func TestOnlyPosts(t *testing.T) {
	w := newWorld(t, nil)
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		r := httptest.NewRequest(method, "https://here.example/actors/alice/inbox/", nil)
		rec := httptest.NewRecorder()
		w.inbox.ServeHTTP(rec, r)
		if rec.Code != 405 || rec.Header().Get("Allow") != "POST" {
			t.Errorf("%s: %d", method, rec.Code)
		}
	}
}

// TestWhatAnInboxSays of an activity is what became of it in each inbox.
func TestWhatAnInboxSays(t *testing.T) {
	clause.Proves(t, "VUL-02-005", "VUL-03-004")
	w := newWorld(t, nil)
	const carol = "https://here.example/actors/carol"
	to := func(id, more string) string { return note(id, `,"to":["`+alice+`","`+carol+`"]`+more) }
	wantLine := func(message string, fresh, conflicts int) {
		t.Helper()
		lines := w.logs.find(message)
		if len(lines) != 1 || lines[0]["new"] != float64(fresh) || conflicts > 0 && lines[0]["conflicts"] != float64(conflicts) {
			t.Errorf("%d lines %q: %v", len(lines), message, lines)
		}
	}
	t.Run("one content for one actor, another for both", func(t *testing.T) {
		w.t = t
		w.wantAt("/actors/carol/inbox", 202, "queued", to("1", ""))
		w.wantAt("/inbox", 202, `"not processed: another activity has this id"`, to("1", `,"summary":"new"`))
		w.wantAt("/actors/alice/inbox", 202, `"not processed: another activity has this id"`, to("1", `,"summary":"newer"`))
		w.work()
		if got := w.inboxes("https://there.example/a/1"); !slices.Equal(got, []string{"carol"}) {
			t.Errorf("it was handled in %q", got)
		}
	})
	t.Run("new in one inbox, and a duplicate in the other", func(t *testing.T) {
		w.t = t
		w.want(202, "queued", to("2", ""))
		w.wantAt("/inbox", 202, `"queued for processing in 1 of 2 inboxes; already queued for processing in 1 of 2 inboxes"`, to("2", ""))
		wantLine("queued for processing in 1 of 2 inboxes; already queued for processing in 1 of 2 inboxes", 1, 0)
		w.wantAt("/actors/carol/inbox", 202, `"already queued for processing"`, to("2", ""))
		w.work()
		if got := w.inboxes("https://there.example/a/2"); !slices.Equal(got, []string{"alice", "carol"}) {
			t.Errorf("it was handled in %q", got)
		}
	})
	t.Run("what is handled, and what waits for an operator", func(t *testing.T) {
		w.t = t
		w.wantAt("/inbox", 202, `"queued for processing"`, to("3", ""))
		w.settle("https://there.example/a/3", "alice", store.MessageDelivered)
		w.wantAt("/inbox", 202, `"already queued for processing in 1 of 2 inboxes; already processed in 1 of 2 inboxes"`, to("3", ""))
		w.settle("https://there.example/a/3", "carol", store.MessageParked)
		w.wantAt("/inbox", 202, `"already received, and waiting for an operator in 1 of 2 inboxes; already processed in 1 of 2 inboxes"`, to("3", ""))
		w.wantAt("/actors/alice/inbox", 202, `"already processed"`, to("3", ""))
		w.wantAt("/actors/carol/inbox", 202, `"already received, and waiting for an operator"`, to("3", ""))
		if n := len(w.work()); n != 2 {
			t.Errorf("it was queued %d times", n)
		}
	})
}

// TestOneIDWithTwoContents is found in whichever inboxes the two arrive, at once and after
// a crash behind the first write.
func TestOneIDWithTwoContents(t *testing.T) {
	clause.Proves(t, "VUL-01-002", "VUL-01-003")
	w := newWorld(t, nil)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			path := []string{"/actors/alice/inbox", "/actors/carol/inbox"}[i%2]
			if rec := w.post(path, note("1", fmt.Sprintf(`,"summary":"%d"`, i%2))); rec.Code != 202 {
				t.Errorf("%d %s", rec.Code, rec.Body)
			}
		})
	}
	all.Wait()
	w.work()
	if got := w.inboxes("https://there.example/a/1"); len(got) != 1 {
		t.Errorf("it was handled in %q", got)
	}

	t.Run("after a crash", func(t *testing.T) {
		st := &cut{Store: memstore.New()}
		w := newWorldOn(t, st, nil)
		st.after.Store(2) // the record of the id is there, and those of inboxes aren't
		w.want(503, "deliver it again", note("2"))
		st.after.Store(1 << 30)
		w.wantAt("/actors/carol/inbox", 202, "another activity has this id", note("2", `,"summary":"other"`))
		w.want(202, `"queued for processing"`, note("2"))
		if w.work(); len(w.handled) != 1 || w.handled[0].Inbox != "alice" {
			t.Errorf("%d handled", len(w.handled))
		}
	})
	t.Run("without an actor, from two servers", func(t *testing.T) {
		w := newWorld(t, func(o *activitypub.Options) { o.Verifier, o.Policies = signedBy{}, nil })
		const body = `{"id":"https://there.example/a/1","type":"Like","object":"x"}`
		w.want(202, "queued", body, "Signed-By", bob)
		w.want(202, "another activity has this id", body, "Signed-By", "https://else.example/u")
		w.want(202, "already", body, "Signed-By", bob)
	})
}

// cut is a store that fails after some writes of activities.
type cut struct {
	semel.Store
	after atomic.Int32
}

func (s *cut) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	if strings.HasPrefix(w.Record.ID.Operation, activitypub.OperationPrefix) && s.after.Add(-1) < 0 {
		return nil, false, fmt.Errorf("cut off: %w", store.ErrNotApplied)
	}
	return s.Store.Apply(ctx, w)
}

// TestIDsWithoutAHost are those of an actor: nobody else can use one up.
func TestIDsWithoutAHost(t *testing.T) {
	clause.Proves(t, "VUL-01-002")
	w := newWorld(t, func(o *activitypub.Options) { o.Verifier, o.Policies = signedBy{}, nil })
	body := func(actor string) string {
		return `{"id":"urn:uuid:8e03978e-40d5-43dd-bc93-6894a57f9324","type":"Like","object":"x","actor":"` + actor + `"}`
	}
	const mallory = "https://evil.example/mallory"
	w.want(202, "queued", body(mallory), "Signed-By", mallory)
	w.want(202, "queued", body(bob), "Signed-By", bob)
	w.want(202, "already", body(bob), "Signed-By", bob)
	w.want(202, "another activity has this id", strings.Replace(body(bob), `"x"`, `"y"`, 1), "Signed-By", bob)
	w.wantAt("/actors/carol/inbox", 202, "another activity has this id", strings.Replace(body(bob), `"x"`, `"z"`, 1), "Signed-By", bob)
	if w.work(); len(w.handled) != 2 || w.handled[1].Actor != bob {
		t.Errorf("%d handled", len(w.handled))
	}
}

// TestAnActorWhoIsGone: a server that gets 401 for what can't be proved any more repeats it
// for days.
func TestAnActorWhoIsGone(t *testing.T) {
	w := newWorld(t, func(o *activitypub.Options) { o.Verifier, o.Policies = signedBy{}, nil })
	of := func(kind, object string) string {
		return `{"id":"https://there.example/a/1#delete","type":"` + kind + `","actor":"` + bob + `","object":` + object + `}`
	}
	w.want(202, "nothing to do", of("Delete", `"`+bob+`"`), "Signed-By", "gone")
	w.want(202, "nothing to do", of("Delete", `{"type":"Person","id":"`+bob+`"}`), "Signed-By", "gone")
	w.want(403, "410", of("Delete", `"https://there.example/notes/1"`), "Signed-By", "gone")
	w.want(403, "410", of("Create", `"`+bob+`"`), "Signed-By", "gone")
	w.want(401, "wrong", of("Delete", `"`+bob+`"`), "Signed-By", "forger")
	if errs := w.work(); len(errs) > 0 {
		t.Errorf("%d are taken", len(errs))
	}
}

// TestAnotherActivityWithTheID is a change of the content, and somebody else's activity.
func TestAnotherActivityWithTheID(t *testing.T) {
	clause.Proves(t, "VUL-01-002")
	w := newWorld(t, func(o *activitypub.Options) { o.Evidence = semel.EvidenceDecisions })
	w.want(202, "queued", note("1"))
	changed := strings.Replace(note("1"), "hello", "bye", 1)
	w.want(202, "another activity has this id", changed)
	stranger := `{"id":"https://there.example/a/1","type":"Like","actor":"https://else.example/u"}`
	w.want(202, "another activity has this id", stranger)
	w.work()
	if len(w.handled) != 1 || string(w.handled[0].Body) != note("1") {
		t.Errorf("%d were handled", len(w.handled))
	}
	lines := w.logs.find("not processed: another activity has this id")
	if len(lines) != 2 {
		t.Fatalf("%d lines", len(lines))
	}
	for _, line := range lines {
		if line["level"] != "WARN" || line["digest"] == line["first_digest"] || line["first_digest"] != lines[0]["first_digest"] ||
			line["activity_id"] != "https://there.example/a/1" {
			t.Errorf("logged %v", line)
		}
	}
	// Each is told of the record of the id, and of the one of alice, whose story it is in.
	conflicts := w.conflicts()
	if len(conflicts) != 4 {
		t.Fatalf("%d conflicts are in the evidence", len(conflicts))
	}
	for _, p := range conflicts {
		if p.Fingerprint == "" || p.Fingerprint != conflicts[0].Fingerprint || p.Presented == "" || p.Presented == p.Fingerprint {
			t.Errorf("the evidence of a conflict has the digests %q and %q", p.Fingerprint, p.Presented)
		}
	}
}

// TestProofsAreNotContent is what an application does that sends an activity again, with
// a new proof in its body.
func TestProofsAreNotContent(t *testing.T) {
	clause.Proves(t, "VUL-01-002")
	w := newWorld(t, nil)
	w.want(202, "queued", note("1", `,"proof":{"created":"2026-01-01T00:00:00Z","proofValue":"z1"}`))
	w.want(202, "already queued for processing", note("1", `,"proof":{"created":"2026-01-02T00:00:00Z","proofValue":"z2"}`))
	w.want(202, "already queued for processing", note("1", `,"signature":{"type":"RsaSignature2017"}`))
	w.want(202, "already queued for processing", note("1", `,"proof":null,"signature":null`))
	w.want(202, "already queued for processing", note("1"))
	w.want(202, "another activity", note("1", `,"summary":"new"`))
}

// TestNobodyUsesUpAnID: an activity with an id of another server isn't the first one
// with it, and doesn't keep that server's out.
func TestNobodyUsesUpAnID(t *testing.T) {
	clause.Proves(t, "VUL-01-002")
	w := newWorld(t, func(o *activitypub.Options) { o.Verifier, o.Policies = signedBy{}, nil })
	evil := `{"id":"https://there.example/a/1","type":"Create","actor":"https://evil.example/u","object":{"type":"Note"}}`
	w.want(422, "another server", evil, "Signed-By", "https://evil.example/u")
	w.want(202, "queued", note("1"), "Signed-By", bob)
	w.want(202, "another activity", evil, "Signed-By", "https://evil.example/u")
	if w.work(); len(w.handled) != 1 || !w.handled[0].Signed || w.handled[0].Actor != bob {
		t.Errorf("%d handled", len(w.handled))
	}
}

func TestSharedInbox(t *testing.T) {
	clause.Proves(t, "VUL-02-001")
	const public = `"https://www.w3.org/ns/activitystreams#Public"`
	w := newWorld(t, nil)
	w.wantAt("/inbox", 202, "queued", note("both", `,"to":["`+alice+`",`+public+`],"cc":{"id":"https://here.example/actors/carol"}`))
	w.wantAt("/inbox", 202, "already", note("both", `,"to":["`+alice+`",`+public+`],"cc":{"id":"https://here.example/actors/carol"}`))
	// And to the inbox of one of them: the same activity in the same inbox.
	w.want(202, "already", note("both", `,"to":["`+alice+`",`+public+`],"cc":{"id":"https://here.example/actors/carol"}`))
	w.wantAt("/inbox/", 202, "queued", note("followers", `,"to":"https://there.example/users/bob/followers"`))
	w.wantAt("/inbox", 202, "queued", note("nobody"))
	w.wantAt("/inbox", 202, "queued", note("one", `,"to":["`+alice+`","https://here.example/actors/gone"]`))
	w.work()
	for id, want := range map[string][]string{"both": {"alice", "carol"}, "followers": {""}, "nobody": {""}, "one": {"alice"}} {
		if got := w.inboxes("https://there.example/a/" + id); !slices.Equal(got, want) {
			t.Errorf("%s was handled in %q, want %q", id, got, want)
		}
	}
}

// TestTooManyInboxes: one delivery can't fill the store by naming everybody.
func TestTooManyInboxes(t *testing.T) {
	w := newWorld(t, func(o *activitypub.Options) {
		o.Exists = func(context.Context, string) (bool, error) { return true, nil }
	})
	to := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`"https://here.example/actors/a%d"`, i))
		}
		return `,"to":[` + strings.Join(list, ",") + `]`
	}
	w.wantAt("/inbox", 422, "more than 100 actors", note("1", to(101)))
	w.wantAt("/actors/a1/inbox", 202, "queued", note("1", to(101))) // one inbox
	w.wantAt("/inbox", 202, "queued", note("2", to(100)))
	w.wantWorked(101)
}

// TestLogs has the fields of the lines about duplicates.
func TestLogs(t *testing.T) {
	clause.Proves(t, "VUL-03-003", "VUL-03-006")
	page, err := os.ReadFile("../../docs/activitypub.md")
	if err != nil || !strings.Contains(string(page), "WARNING of the specification is `WARN`") {
		t.Errorf("the page doesn't say how the level is written: %v", err)
	}
	w := newWorld(t, nil)
	w.want(202, "queued", note("1"), "X-Correlation-ID", "req-7")
	w.want(202, "already", note("1"), "X-Request-ID", "req-8")
	for message, want := range map[string][2]string{"queued for processing": {"INFO", "req-7"}, "already queued for processing": {"WARN", "req-8"}} {
		lines := w.logs.find(message)
		if len(lines) != 1 {
			t.Fatalf("%d lines %q", len(lines), message)
		}
		l := lines[0]
		if l["level"] != want[0] || l["correlation_id"] != want[1] || l["door"] != "activitypub" || l["component"] != "activitypub" || l["activity_id"] != "https://there.example/a/1" ||
			l["actor_id"] != bob || l["inbox"] != "alice" || l["status"] != 202.0 || l["time"] == nil {
			t.Errorf("logged %v", l)
		}
	}
	for i, want := range []semel.Decision{semel.Execute, semel.Replay} {
		if e := w.answered[i]; e.Door != activitypub.Name || e.Decision != want || e.Code != "" || e.ID.Key != "https://there.example/a/1" || e.Took <= 0 {
			t.Errorf("told of %+v", e)
		}
	}
	if rec := w.post("/actors/alice/inbox/", note("2"), "X-Correlation-ID", "two words"); rec.Header().Get("X-Correlation-ID") != "https://there.example/a/2" {
		t.Errorf("correlation %q", rec.Header().Get("X-Correlation-ID"))
	}
}

// stalled is a store whose writes of activities wait, after some.
type stalled struct {
	semel.Store
	pass atomic.Int32 // how many don't wait
	hold chan struct{}
}

func stall(st semel.Store, pass int32) *stalled {
	s := &stalled{Store: st, hold: make(chan struct{})}
	s.pass.Store(pass)
	return s
}

func (s *stalled) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	if strings.HasPrefix(w.Record.ID.Operation, activitypub.OperationPrefix) && s.pass.Add(-1) < 0 {
		<-s.hold
	}
	return s.Store.Apply(ctx, w)
}

// TestADuplicateWaitsAMomentOnly: while the store stalls, a duplicate is told to come
// again after 100 ms, and never that the activity is taken.
func TestADuplicateWaitsAMomentOnly(t *testing.T) {
	clause.Proves(t, "VUL-03-002", "VUL-03-007")
	synctest.Test(t, func(t *testing.T) {
		st := stall(memstore.New(), 1) // the claim is written, and its outcome waits
		w := newWorldOn(t, st, func(o *activitypub.Options) { o.Budget = 0 })
		var all sync.WaitGroup
		for range 2 { // the second is a duplicate
			all.Go(func() {
				start := time.Now()
				rec := w.post("/actors/alice/inbox", note("1"))
				if rec.Code != 503 || !strings.Contains(rec.Body.String(), "deliver it again") || rec.Header().Get("Retry-After") == "" {
					t.Errorf("%d %s, Retry-After %q", rec.Code, rec.Body, rec.Header().Get("Retry-After"))
				}
				if took := time.Since(start); took > 100*time.Millisecond {
					t.Errorf("answered after %v", took)
				}
			})
		}
		all.Wait()
		// There is much to do, which is nobody's fault.
		for _, line := range w.logs.find("activity refused") {
			if line["level"] != "WARN" {
				t.Errorf("logged %v", line)
			}
		}
		for _, e := range w.answered {
			if e.Took > 100*time.Millisecond {
				t.Errorf("%d after %v", e.Status, e.Took)
			}
		}
		close(st.hold)
		synctest.Wait()
		start := time.Now()
		w.want(202, "already", note("1"))
		if took := time.Since(start); took > 0 {
			t.Errorf("a duplicate of what is in the store was answered after %v", took)
		}
	})
}

// TestAStallIsNoAnswer: if the store doesn't answer in time, the sender isn't told that
// its activity is taken, and it is handled once nevertheless.
func TestAStallIsNoAnswer(t *testing.T) {
	for _, pass := range []int32{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			st := stall(memstore.New(), pass)
			w := newWorldOn(t, st, func(o *activitypub.Options) { o.Budget = 0 })
			w.want(503, "deliver it again", note("1"))
			close(st.hold)
			<-time.After(time.Minute) // of the bubble: what was begun ends, and leases do
			w.want(202, "", note("1"))
			w.work()
			if got := w.inboxes("https://there.example/a/1"); len(got) != 1 {
				t.Errorf("handled in %q", got)
			}
		})
	}
}

func TestNobodyKnowsIfThereIsSuchAnActor(t *testing.T) {
	w := newWorld(t, func(o *activitypub.Options) {
		o.Exists = func(context.Context, string) (bool, error) { return false, errors.New("the directory is down") }
	})
	w.want(503, "deliver it again", note("1"))
	w.wantAt("/inbox", 503, "deliver it again", note("1", `,"to":"`+alice+`"`))
}
