package cli

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/internal/rig/turns"
)

// BenchmarkColdStart starts the stripped program and waits until GET /readyz returns 200, in
// an empty directory and in one that was closed, and runs semel version beside them, which
// needs only what every command does:
//
//	go test ./cmd/semel/internal/cli -run '^$' -bench ColdStart -benchtime 20x -turns.length 1s
//
// It reports medians in milliseconds, and how many times a version a start takes. With long turns it fails if that is too much: a machine that is slow
// is slow for both.
func BenchmarkColdStart(b *testing.B) {
	exe := filepath.Join(b.TempDir(), "semel")
	if out, err := exec.Command("go", append(released, "-o", exe, "github.com/semelhq/semel/cmd/semel")...).CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	closed := b.TempDir()
	startOnce(b, exe, closed)
	var fresh, again, version []float64
	for b.Loop() {
		fresh = append(fresh, startOnce(b, exe, b.TempDir()))
		again = append(again, startOnce(b, exe, closed))
		begun := time.Now()
		if err := exec.Command(exe, "version").Run(); err != nil {
			b.Fatal(err)
		}
		version = append(version, milliseconds(begun))
	}
	ratio := turns.Median(again) / turns.Median(version)
	b.ReportMetric(turns.Median(fresh), "fresh-ms")
	b.ReportMetric(turns.Median(again), "again-ms")
	b.ReportMetric(turns.Median(version), "version-ms")
	b.ReportMetric(ratio, "ratio")
	b.ReportMetric(0, "ns/op") // of a round, which says nothing
	// It is 3 to 6 times, by how busy the machine is. Building the API before a start was ready
	// made it 8 to 15; a test of package service counts what that allocates.
	if turns.Long() && ratio > 8 {
		b.Errorf("a start takes %.1f times as long as semel version", ratio)
	}
}

// startOnce is the time from the start of a service until it is ready, in milliseconds. The
// service is stopped then.
func startOnce(b *testing.B, exe, dir string) float64 {
	b.Helper()
	cmd := exec.Command(exe, "serve", "--json", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--store", "pebble:"+filepath.Join(dir, "data"))
	cmd.Dir = dir
	begun := time.Now()
	p, err := stage.Start(b.Context(), cmd)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := p.Terminate(); err != nil {
			b.Error(err)
		}
	}()
	err = stage.Until(b.Context(), func() bool {
		res, err := http.Get(p.AdminURL + "/readyz")
		return err == nil && res.Body.Close() == nil && res.StatusCode == http.StatusOK
	})
	if err != nil {
		b.Fatal(err)
	}
	return milliseconds(begun)
}

func milliseconds(since time.Time) float64 { return float64(time.Since(since)) / 1e6 }
