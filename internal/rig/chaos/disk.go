//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// disk is a separate file system, in a file, that can fail. Only root can make one.
type disk struct {
	image, dir string
	unguard    func() // ends the process that unmounts it once the rig is gone

	mu sync.Mutex // held by the fault that affects it
}

// diskSize leaves room for the records of a run.
const diskSize = 512 << 20

// newDisk makes a disk and mounts it.
func newDisk(dir string) (*disk, error) {
	d := &disk{image: filepath.Join(dir, "disk.img"), dir: filepath.Join(dir, "disk")}
	f, err := os.OpenFile(d.image, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Truncate(diskSize), f.Close(), os.Mkdir(d.dir, 0o755), command("mkfs.ext4", "-q", "-F", d.image), d.mount()); err != nil {
		return nil, errors.Join(err, os.Remove(d.image))
	}
	// Its input ends with the rig, however that ends.
	guard := exec.Command("sh", "-c", `read _; fsfreeze -u "$0" 2>/dev/null; umount -l "$0" 2>/dev/null`, d.dir)
	in, err := guard.StdinPipe()
	if err == nil {
		err = guard.Start()
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	d.unguard = func() {
		_ = in.Close()
		_ = guard.Wait() // the disk is unmounted already
	}
	return d, nil
}

// command runs a program.
func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %.200s", name, err, out)
	}
	return nil
}

func (d *disk) mount() error { return command("mount", "-o", "loop", d.image, d.dir) }

// close unmounts the disk, which must be unused.
func (d *disk) close() error {
	_ = command("fsfreeze", "-u", d.dir) // it is frozen only if a fault was cut off
	err := command("umount", d.dir)
	if d.unguard != nil {
		d.unguard()
	}
	return err
}

// stall keeps the disk from writing anything for a time. The thaw is part of the same
// command, so that it comes even if the rig ends.
func (d *disk) stall(s *injection) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return once(command("sh", "-c", fmt.Sprintf(`fsfreeze -f "$0"; sleep %.3f; fsfreeze -u "$0"`, s.lasts.Seconds()), d.dir))
}

// fill leaves no room on the disk for a time.
func (d *disk) fill(s *injection) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ballast := filepath.Join(d.dir, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		return 0, err
	}
	filled := 0
	for block := make([]byte, 1<<20); len(block) > 0 && s.ctx.Err() == nil; {
		n, err := f.Write(block)
		filled += n
		if err != nil {
			block = block[:len(block)/2] // less may still fit
		}
	}
	s.wait()
	// A file system that is refused next would bring back what was not synced.
	return once(f.Close(), os.Remove(ballast), command("sync", "-f", d.dir))
}

// refuse makes the disk read-only for a time, as a file system becomes after an error.
// Everything unsynced is lost, as in a crash of the machine. user is stopped before the
// disk is mounted again, and started afterwards.
func (d *disk) refuse(s *injection, user *process) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// While ext4 aborts a file system, it acknowledges a running sync that is lost. Real
	// disks don't do that, so nothing may sync meanwhile.
	standstill, err := user.standStill()
	if err == nil {
		err = command("mount", "-o", "remount,abort", d.dir)
	}
	standstill()
	if err != nil {
		return 0, err
	}
	s.wait()
	resume := user.hold()
	if err = command("umount", d.dir); err == nil {
		// The journal is replayed, and the mark of the error removed.
		_ = command("e2fsck", "-fy", d.image) // it exits with 1 after a repair
		err = d.mount()
	}
	return once(err, resume())
}

// groundPebble is the embedded store of one node, on a separate disk if one can be made.
func groundPebble(t *rig, _ Options) *ground {
	s := &ground{nodes: 1, heal: func() error { return nil }, skipped: map[string]string{}, attach: func(map[string]*node) {}}
	names := []string{"disk.full", "disk.readonly", stallFault}
	d, err := newDisk(t.dir)
	if err != nil {
		for _, name := range names {
			s.skipped[name] = "no disk can be made here: " + err.Error()
		}
		s.url = func(int) string { return "pebble:" + filepath.Join(t.dir, "data") }
		return s
	}
	s.url = func(int) string { return "pebble:" + filepath.Join(d.dir, "data") }
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Fatal(err)
		}
	})
	s.disks = names
	s.stall = func(lasts time.Duration) error {
		_, err := d.stall(&injection{lasts: lasts})
		return err
	}
	s.attach = func(nodes map[string]*node) {
		user := nodes[nodeName(1)].process
		on := func(name string, do func(s *injection) (int, error)) fault { return fault{name, []string{"disk"}, do} }
		s.faults = []fault{
			on(names[0], func(sh *injection) (int, error) {
				hits, err := d.fill(sh)
				return hits, errors.Join(err, user.await(recoveryTimeout))
			}),
			// The node is stopped meanwhile, and no other fault may start it.
			{names[1], []string{nodeName(1)}, func(sh *injection) (int, error) {
				hits, err := d.refuse(sh, user)
				return hits, errors.Join(err, user.await(recoveryTimeout))
			}},
			on(stallFault, d.stall),
		}
	}
	return s
}
