package check

import (
	"bufio"
	"context"
	"maps"
	"net/http"
	"net/textproto"
	"strings"
	"time"
)

// Kit judges implementations of one document, by its sentences as requests.
type Kit struct {
	// Requirements is a file with the sentences. As those in requirements it isn't edited.
	Requirements []byte
	// Short, Long and Example are the help of its command, and Flags its own flags.
	Short, Long, Example string
	Flags                []Flag
	// Start gets ready, and returns the groups in their order. An error means that there is no
	// verdict. What it starts ends with the context.
	Start func(ctx context.Context, b *Bench) ([]Group, error)
}

// Help is the help of its command, with each kit's own part.
func (k *Kit) Help() string {
	return k.Long + `

That takes some seconds. Each request may have a real effect, and has the header
Semel-Check: 1; a service that isn't on this machine is refused. Don't limit the rate of
requests. docs/check.md has more about the setup.

The exit code is 1 if a sentence is broken. The JSON is that of 'semel check http'.`
}

// Flag is a flag of a kit's command.
type Flag struct{ Name, Default, Usage string }

// Bench is where a kit sends its requests, and puts its verdicts.
type Bench = judge

// Run checks a service. An error means that there is no verdict.
func (k *Kit) Run(ctx context.Context, opts Options) (*Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	j, err := newJudge(ctx, opts)
	if err == nil {
		j.profile, err = parseProfile("requirements", k.Requirements)
	}
	if err != nil {
		return nil, err
	}
	lines := strings.Join(append(opts.Header, "Content-Type: application/json"), "\n") + "\n\n"
	header, err := textproto.NewReader(bufio.NewReader(strings.NewReader(lines))).ReadMIMEHeader()
	if err != nil {
		return nil, wrong("the header %q isn't one of lines such as Authorization: Bearer alice", opts.Header)
	}
	j.requests = map[string]request{"": {header: http.Header(header)}}
	groups, err := k.Start(ctx, j)
	if err != nil {
		return nil, err
	}
	return j.all(ctx, groups)
}

// URL is the service.
func (j *judge) URL() string { return j.opts.URL }

// Flag is the value of a flag.
func (j *judge) Flag(name string) string { return *j.opts.Flags[name] }

// Holds records whether a requirement holds, and what was seen if not. The first fault stays.
func (j *judge) Holds(id string, holds bool, saw string, args ...any) {
	switch v := j.verdicts[id]; {
	case v != nil && v.Outcome != Kept:
	case holds:
		j.judge(id, "")
	default:
		j.fail(id, saw, args...)
	}
}

// Ask makes a group of one probe, which judges sentences by their ids without the group.
func Ask(name, ids string, run func(ctx context.Context), needs ...string) Group {
	return Group{Name: name, Needs: needs, Probes: []Probe{{IDs: ids, Run: func(_ *judge, ctx context.Context) { run(ctx) }}}}
}

// Post delivers a document to the URL that is checked, with lines of its own in the header. Its
// name is a text in it, which transcripts replace, and so does anybody who sends it again by hand.
func (j *judge) Post(ctx context.Context, name, document string, own http.Header) Answer {
	return j.deliverCut(ctx, j.posted(name, document, own), nowhere, 0)
}

// Half delivers the first half of a document, and resets the connection.
func (j *judge) Half(ctx context.Context, document string, own http.Header) {
	j.deliverCut(ctx, j.posted("", document, own), inRequest, lingering)
}

// Leave delivers a document, and resets the connection soon after. It returns what has come by then.
func (j *judge) Leave(ctx context.Context, name, document string, own http.Header) Answer {
	return j.deliverCut(ctx, j.posted(name, document, own), afterRequest, lingering)
}

// LeaveStream delivers a document, and resets the connection once the first event of the answer is there.
func (j *judge) LeaveStream(ctx context.Context, name, document string, own http.Header) Answer {
	return j.deliverCut(ctx, j.posted(name, document, own), inAnswer, 0)
}

func (j *judge) posted(name, document string, own http.Header) call {
	header := j.requests[""].header.Clone()
	maps.Copy(header, own)
	return call{request{http.MethodPost, j.base.RequestURI(), header, document}, name, []string{}}
}

// Get reads an address, which may be relative to the URL that is checked. It goes to no other
// machine than the check may.
func (j *judge) Get(ctx context.Context, address string) Answer {
	u, err := j.base.Parse(address)
	if err == nil {
		u, err = service(ctx, u.String(), j.opts.Remote)
	}
	if err != nil {
		return Answer{Err: err}
	}
	return j.deliverCut(ctx, call{request{http.MethodGet, u.String(), j.requests[""].header, ""}, "", []string{}}, nowhere, 0)
}

// Until asks until it gets the last answer, or for as long as patience lasts.
func Until[T any](ctx context.Context, b *Bench, ask func() (answer T, last bool)) T {
	for end := time.Now().Add(b.opts.Patience); ; <-time.After(lingering) {
		if answer, last := ask(); last || time.Now().After(end) || ctx.Err() != nil {
			return answer
		}
	}
}
