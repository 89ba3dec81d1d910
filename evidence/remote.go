package evidence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/semelhq/semel/safehttp"
)

// RemoteWitness is a witness that speaks C2SP's tlog-witness over HTTP.
type RemoteWitness struct {
	url    string
	key    *CosignerKey
	client safehttp.Client
	size   uint64 // size that the witness last signed, as far as this node knows
}

// NewRemoteWitness returns the [Keeper] that asks the witness at a URL, to which it adds
// /add-checkpoint, for its signatures. It follows no redirects. base makes the connections; nil
// makes them to the URL itself, even if the environment names a proxy.
func NewRemoteWitness(at string, key *CosignerKey, base http.RoundTripper) (*RemoteWitness, error) {
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, fmt.Errorf("evidence: %q is not the URL of a witness", at)
	}
	client := safehttp.Client{Base: base, MaxAnswer: maxAnswer}
	return &RemoteWitness{url: strings.TrimSuffix(at, "/") + "/add-checkpoint", key: key, client: client}, nil
}

// maxAnswer bounds a witness's answer, in bytes.
const maxAnswer = 16 << 10

// Keep is [Keeper.Keep]. A witness that has signed another history refuses.
func (w *RemoteWitness) Keep(ctx context.Context, signed string, prove func(old uint64) (tlog.TreeProof, error)) (string, error) {
	c, err := unsigned(signed)
	if err != nil {
		return "", err
	}
	for range 3 {
		if w.size > c.Size {
			return "", fmt.Errorf("%w: the witness %s has signed %d entries, and there are %d", ErrFork, w.key.name, w.size, c.Size)
		}
		proof, err := prove(w.size)
		if err != nil {
			return "", err
		}
		status, answer, err := w.ask(ctx, addCheckpoint(w.size, proof, signed))
		switch {
		case err != nil:
			return "", err
		case status == http.StatusOK:
			body, _, _ := parts(signed)
			line, _, err := w.key.verify(body, answer)
			if err != nil {
				return "", err
			}
			w.size = c.Size
			return signed + line, nil
		case status == http.StatusConflict:
			// The witness has another size than this node knows.
			size, err := strconv.ParseUint(strings.TrimSpace(answer), 10, 63)
			if err != nil || size == w.size {
				return "", fmt.Errorf("%w: the witness %s has another root at %d entries", ErrFork, w.key.name, w.size)
			}
			w.size = size
		case status == http.StatusUnprocessableEntity:
			return "", fmt.Errorf("%w: the witness %s found no consistency", ErrFork, w.key.name)
		default:
			return "", fmt.Errorf("evidence: the witness %s answers %d", w.key.name, status)
		}
	}
	return "", errors.New("evidence: the witness is asked by others too, and faster")
}

func (w *RemoteWitness) ask(ctx context.Context, body string) (status int, answer string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	got, err := w.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	return got.Status, string(got.Body), nil
}

func addCheckpoint(old uint64, proof tlog.TreeProof, signed string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "old %d\n", old)
	for _, h := range proof {
		b.WriteString(h.String() + "\n")
	}
	return b.String() + "\n" + signed
}
