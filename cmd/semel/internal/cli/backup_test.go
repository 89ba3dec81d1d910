package cli

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/servertest"
	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/config"
)

const backupPage = "docs/backup.md"

// uuidV7 is a key that says when it was made.
func uuidV7() string {
	var b [16]byte
	_, _ = rand.Read(b[6:]) // never fails
	binary.BigEndian.PutUint64(b[:8], uint64(time.Now().UnixMilli())<<16|7<<12|uint64(b[6])<<4&0xfff)
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// TestBackupOfADirectory runs what docs/backup.md says of the embedded store and of the
// evidence log: a call completed before the backup is replayed, one that was aborted before it
// is held, and one that was made after it is refused, where its key says when it was first sent.
func TestBackupOfADirectory(t *testing.T) {
	data, admin := strconv.Itoa(servertest.FreePort(t)), strconv.Itoa(servertest.FreePort(t))
	p := newPage(t, "127.0.0.1:8480", "127.0.0.1:"+data, "127.0.0.1:8481", "127.0.0.1:"+admin)
	text, err := os.ReadFile(filepath.Join("../../../..", backupPage))
	if err != nil {
		t.Fatal(err)
	}
	cfg := regexp.MustCompile("(?s)<!-- config -->\n```yaml\n(.*?)```").FindSubmatch(text)
	p.write("semel.yaml", p.place.Replace(string(cfg[1])))
	p.write("shop.token", "shop-token-0123456789abcdef")
	p.write("admin.token", "admin-token-0123456789abcdef")
	run := func(command string) {
		t.Helper()
		if err := p.run(command, ""); err != nil {
			t.Fatal(err)
		}
	}
	run("semel evidence keygen --origin example.com/log --out evidence.key >evidence.pub")
	run("systemctl start semel")
	post := func(path, body, key string, want int) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:"+data+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer shop-token-0123456789abcdef")
		r.Header.Set("Content-Type", "application/json")
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		res, err := stage.Direct.Transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		answer := new(strings.Builder)
		if err := errors.Join(res.Write(answer), res.Body.Close()); err != nil || res.StatusCode != want {
			t.Fatalf("%s %s: want %d, %v\n%s", path, key, want, err, answer)
		}
		return answer.String()
	}
	begin := func(key string, want int) string {
		t.Helper()
		return post("/v1/operations/payments.charge/executions", `{"payload":{"amount":12}}`, key, want)
	}
	execution := regexp.MustCompile(`"execution":"([^"]+)"`)
	end := func(key, how, body string) {
		t.Helper()
		begun := execution.FindStringSubmatch(begin(key, http.StatusCreated))
		if begun == nil {
			t.Fatal("no execution")
		}
		post("/v1/executions/"+begun[1]+"/"+how, body, "", http.StatusOK)
	}
	complete := func(key string) { end(key, "complete", `{"result":{"charge":"ch_1"}}`) }
	complete("order-1")
	end("order-2", "abort", `{}`) // it would run again
	p.walks(backupPage, "### Back up a directory")
	later := uuidV7()
	complete(later)
	p.walks(backupPage, "### Restore a directory")
	p.walks(backupPage, "## The evidence log")
	begin("order-1", http.StatusOK)
	begin(later, http.StatusPreconditionFailed)
	begin("order-2", http.StatusConflict)
	p.walks(backupPage, "## Afterwards")
	run("systemctl stop semel")
	run("semel evidence export --config semel.yaml --out after.jsonl && semel evidence verify --keys evidence.pub after.jsonl && grep -q store.restored after.jsonl")
}

// backedUp are the calls that the tests of servers make.
var backedUp = semel.Operation{Name: "payments.charge", OnAbandoned: semel.RetryAbandoned}

// withEngine runs f on an engine on a store.
func withEngine(t *testing.T, url string, f func(e *semel.Engine)) {
	t.Helper()
	st, err := service.OpenStore(t.Context(), config.Store{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{backedUp}})
	if err == nil {
		_, err = e.Internal().LoadEpoch(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	f(e)
	if err := errors.Join(e.Close(context.WithoutCancel(t.Context())), st.Close()); err != nil {
		t.Error(err)
	}
}

func chargeOnce(t *testing.T, e *semel.Engine, key string, want semel.Decision) semel.Answer {
	t.Helper()
	ans, err := e.Begin(t.Context(), semel.Call{Operation: backedUp.Name, Key: key})
	if ans.Decision != want {
		t.Fatalf("%s: %s, %v, want %s", key, ans.Decision, err, want)
	}
	return ans
}

// beforeBackup and afterBackup are what happens around a backup, afterRestore what is left.
func beforeBackup(t *testing.T, e *semel.Engine) {
	t.Helper()
	if err := chargeOnce(t, e, "completed", semel.Execute).Attempt.Complete(t.Context(), semel.Result{Data: []byte("ch_1")}); err != nil {
		t.Fatal(err)
	}
	chargeOnce(t, e, "running", semel.Execute).Attempt.Detach()
}

func afterBackup(t *testing.T, e *semel.Engine, later string) {
	t.Helper()
	if err := chargeOnce(t, e, later, semel.Execute).Attempt.Complete(t.Context(), semel.Result{}); err != nil {
		t.Fatal(err)
	}
}

func afterRestore(t *testing.T, e *semel.Engine, later string) {
	t.Helper()
	if ans := chargeOnce(t, e, "completed", semel.Replay); string(ans.Record.Result.Data) != "ch_1" {
		t.Errorf("the answer is %q", ans.Record.Result.Data)
	}
	chargeOnce(t, e, later, semel.TooLate)
	if ans, err := e.Begin(t.Context(), semel.Call{Operation: backedUp.Name, Key: "running"}); ans.Decision != semel.Held && ans.Decision != semel.InFlight {
		t.Errorf("what was running: %s, %v", ans.Decision, err)
	}
}

// TestBackupOfADatabase runs what docs/backup.md says of PostgreSQL.
func TestBackupOfADatabase(t *testing.T) {
	p := onPostgreSQL(t)
	p.makeRoles()
	later := uuidV7()
	withEngine(t, p.place.Replace("postgres://semel_app@db/semel"), func(e *semel.Engine) {
		beforeBackup(t, e)
		p.walks(backupPage, "### Back up a database")
		afterBackup(t, e, later)
	})
	p.walks(backupPage, "### Restore a database")
	withEngine(t, p.place.Replace("postgres://semel_app@db/semel_restored"), func(e *semel.Engine) { afterRestore(t, e, later) })
}

// TestBackupOfRedis runs what docs/backup.md says of Redis.
func TestBackupOfRedis(t *testing.T) {
	port := strconv.Itoa(servertest.FreePort(t))
	p, server := onRedis(t, port)
	t.Cleanup(func() { // by force: it refuses while it writes its first append-only file
		if said, _ := exec.Command("redis-cli", "-p", port, "SHUTDOWN", "NOSAVE", "FORCE").CombinedOutput(); len(said) > 0 {
			t.Errorf("the server goes on: %s", said)
		}
	})
	later := uuidV7()
	withEngine(t, server.URL(), func(e *semel.Engine) {
		beforeBackup(t, e)
		p.walks(backupPage, "### Back up a server")
		afterBackup(t, e, later)
	})
	p.walks(backupPage, "### Restore a server")
	withEngine(t, "redis://127.0.0.1:"+port, func(e *semel.Engine) { afterRestore(t, e, later) })
}
