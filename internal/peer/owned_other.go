//go:build !unix

package peer

import "os"

// OnlyOurs reports whether nobody else can write a file or a directory, which this system
// doesn't tell.
func OnlyOurs(string) bool { return false }

// readOwn reads a file. This system doesn't tell who else can write it.
func readOwn(file string) ([]byte, error) { return os.ReadFile(file) }
